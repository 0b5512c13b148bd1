package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/examples"
)

// examplePlan is the plan that example writes, in the folder that it runs in: compile's default.
const examplePlan = "llama7b-pp4-VR.bin"

func (a *app) exampleCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "example",
		Short: "Try stplan on a recording that it brings, without a GPU",
		Long: `example writes a real recording into the current folder, compiles it into a
plan, verifies the plan and compares it with PyTorch's allocators. It prints
each command that it runs, so that you can run them again, or on recordings of
your own. Nothing of it needs a GPU or PyTorch.

The recording, ` + examples.Name + `, is of one stage of a pipeline of
Llama 7B, trained with Megatron-LM. The plan is ` + examplePlan + `.
Files of these names are replaced.`,
		Example: `  stplan example`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError(cmd, fmt.Sprintf("expected no arguments, found %d", len(args)))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.outputs.writeBytes(examples.Name, examples.Recording); err != nil {
				return err
			}
			for _, step := range []struct {
				command   *cobra.Command
				arguments []string
			}{
				{a.compileCommand(), []string{"compile", examples.Name}},
				{a.verifyCommand(), []string{"verify", examplePlan, "--trace", examples.Name}},
				{a.diffCommand(), []string{"diff", examplePlan, "--trace", examples.Name}},
			} {
				fmt.Fprintln(a.stdout, "$ stplan "+strings.Join(step.arguments, " "))
				step.command.SilenceUsage, step.command.SilenceErrors = true, true
				step.command.SetArgs(step.arguments[1:])
				if err := step.command.ExecuteContext(cmd.Context()); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
