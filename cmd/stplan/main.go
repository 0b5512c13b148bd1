// Command stplan compiles a recorded PyTorch run into a memory plan.
package main

import "os"

func main() {
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
