package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/stplan/stplan/internal/report"
	"github.com/stplan/stplan/internal/simdevice"
	"github.com/stplan/stplan/internal/store"
	"github.com/stplan/stplan/runtime/cuda"
)

// execute runs one command line and returns its exit code. It owns the
// signals: on SIGINT or SIGTERM unfinished output files are removed before it
// returns.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, outputs: &outputs{stdout: stdout, remote: remote{ctx: ctx, store: store.New()}}}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	done := make(chan error, 1)
	go func() { done <- a.command(ctx, args) }()
	select {
	case err := <-done:
		return a.finish(err)
	case s := <-signals:
		cancel()
		if a.jobOwnsSignals.Load() {
			return a.finish(<-done)
		}
		a.outputs.abandon()
		how, code := "interrupted", exitInterrupted
		if s == syscall.SIGTERM {
			how, code = "terminated", exitTerminated
		}
		fmt.Fprintln(stderr, "stplan: "+how+"; "+whatWasWritten(a.outputs.finished())+a.goingOn())
		return code
	}
}

// goingOn says how to do what is left.
func (a *app) goingOn() string {
	if a.resumes.Load() {
		return "; the same command does the rest"
	}
	return ""
}

// whatWasWritten names the files that are finished, without what commands note for themselves.
func whatWasWritten(files []string) string {
	files = slices.DeleteFunc(slices.Clone(files), func(file string) bool { return path.Base(path.Dir(filepath.ToSlash(file))) == recordsFolder })
	if len(files) == 0 {
		return "no output file was changed"
	}
	more := ""
	const most = 10 // that can be read
	if n := len(files) - most; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
		files = files[:most]
	}
	return "written before that: " + report.Printable(strings.Join(files, ", ")) + more
}

// command runs the command and turns a panic into a bug.
func (a *app) command(ctx context.Context, args []string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &bug{fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	root := a.rootCommand()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// finish reports err once and maps it to an exit code.
func (a *app) finish(err error) int {
	if err == nil {
		return exitOK
	}
	a.outputs.abandon()
	var j *jobExit
	if errors.As(err, &j) {
		return j.code
	}
	if isBug(err) {
		fmt.Fprintf(a.stderr, "stplan: %s\nhint: this is a bug in stplan; please report it with the command and, if you can, its input\n", report.PrintableLines(err.Error()))
		return exitBug
	}
	var n *negative
	no, text := errors.As(err, &n) && !ofEnvironment(err), message(err)
	if no {
		text = verdict(a.stderr, false, text)
	}
	fmt.Fprintf(a.stderr, "stplan: %s\n", text)
	var h *hinted
	if errors.As(err, &h) {
		fmt.Fprintf(a.stderr, "hint: %s\n", report.Printable(h.hint))
	}
	if no {
		return exitNo
	}
	return exitBadInput
}

func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "stplan",
		Short: "Compile a recorded PyTorch run into a GPU memory plan",
		Long: `stplan reads one recorded run of a training job (a PyTorch memory snapshot, a
Parquet trace or a history), gives every allocation an address, proves the
result, and says what it saves against PyTorch's own allocators. Later runs of
the job are served at these addresses.

Wherever a command takes a TRACE it takes a snapshot
(torch.cuda.memory._dump_snapshot, plain, gzip or zstd), a Parquet trace
(docs/trace.md) or a history that the runtime has kept (docs/history.md). "-" is
standard input. A folder stands for the recordings in it, and 'rank*.gz' for
those of such names.

A trace, a plan or a table may also be s3://BUCKET/KEY, of any server that
speaks S3 (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and the like; docs/stores.md), or
to read https://HOST/PATH. s3://BUCKET/DIR/, with the slash, is a folder.

Exit codes: 0 fine; 1 the answer is no (a plan that does not verify, a limit not
met); 2 bad usage or bad input, or an output that could not be written; 3 a bug
in stplan; 130 interrupted (SIGINT), 143 terminated (SIGTERM). record and run
end with the job's own. Of several recordings or plans, 1 says that some or all
are no good, and 2 that some could not be reached or their output not written: a
full disk, a server that does not answer. Of several causes the largest counts.`,
		Example: `  stplan run -- python train.py             # learns a plan, then uses it
  stplan record -- python train.py          # writes traces/...pickle.gz
  stplan compile run.pickle.gz              # writes run.bin
  stplan compile traces/ -o plans/          # every rank of a job
  stplan run run.bin -- python train.py     # served by the plan
  stplan verify run.bin --trace run.pickle.gz
  stplan diff run.bin --trace run.pickle.gz # against PyTorch's allocators`,
		Version:       cuda.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			hint := `"stplan --help" lists the commands`
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				hint = "the nearest is " + strings.Join(near, ", ") + "; " + hint
			}
			return &hinted{fmt.Errorf("unknown command %q", args[0]), hint}
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2 // letters: cobra's own default
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetVersionTemplate("stplan {{.Version}} " + kindOfBuild() + "\n")
	usage := strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages", ".FlagUsagesWrapped 80")
	root.SetUsageTemplate(strings.ReplaceAll(usage, "{{if .Runnable}}", "{{if and .Runnable .HasParent}}"))
	root.PersistentFlags().BoolVarP(&a.quiet, "quiet", "q", false, "print results and errors only: no progress, no notes")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &hinted{err, fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help")}
	})
	root.AddCommand(
		a.importCommand(),
		a.compileCommand(),
		a.tableCommand(),
		a.verifyCommand(),
		a.inspectCommand(),
		a.diffCommand(),
		a.fitCommand(),
		a.peakCommand(),
		a.reportCommand(),
		a.exportCommand(),
		a.replayCommand(),
		a.packCommand(),
		a.exampleCommand(),
		a.recordCommand(),
		a.runCommand(),
	)
	demandTopics(root)
	demandCompletions(root)
	return root
}

// kindOfBuild says whether this build has the C runtime.
func kindOfBuild() string {
	if simdevice.Built {
		return "(with the C runtime)"
	}
	return "(built without cgo: no C runtime, so no replay, and plans without an advice)"
}

// demandTopics makes help and completion refuse a topic that does not exist;
// cobra prints their help and succeeds.
func demandTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return &hinted{fmt.Errorf("no help for %q", strings.Join(args, " ")), `"stplan --help" lists the commands`}
				}
				return nil
			}
		case "completion":
			cmd.RunE = func(cmd *cobra.Command, _ []string) error {
				return usageError(cmd, "expected bash, fish, powershell or zsh")
			}
		}
	}
}
