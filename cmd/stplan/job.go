package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

// jobExit passes a job's exit code on. The job has said what there was to say.
type jobExit struct{ code int }

func (j *jobExit) Error() string { return fmt.Sprintf("the job ended with exit code %d", j.code) }

// demandCommand refuses a command that cannot be run, before anything is made for it.
func demandCommand(command []string) error {
	_, err := exec.LookPath(command[0])
	if err == nil {
		return nil
	}
	var found *exec.Error
	if errors.As(err, &found) {
		err = found.Err
	}
	err = fmt.Errorf("%s: cannot run: %w", command[0], cause(err))
	if strings.HasSuffix(command[0], ".py") {
		return &hinted{err, "-- python " + shellQuote(command[0])}
	}
	return err
}

// runJob runs a command of the user's with env, on stplan's own standard
// streams, and returns its exit code: 128 + N if signal N ended it. Signals
// to stplan are the job's; stplan itself ends when the job has.
func (a *app) runJob(command, env []string) (code int, err error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	a.jobOwnsSignals.Store(true)
	received := make(chan os.Signal, 16)
	signal.Notify(received, jobSignals...)
	defer signal.Stop(received)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("%s: cannot run: %w", command[0], cause(err))
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-received:
			if !sentToJobToo(s) {
				// A job that has just ended cannot be told; that is no error.
				_ = cmd.Process.Signal(s)
			}
		case err := <-ended:
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				return 0, fmt.Errorf("%s: %w", command[0], cause(err))
			}
			return exitCode(cmd.ProcessState), nil
		}
	}
}
