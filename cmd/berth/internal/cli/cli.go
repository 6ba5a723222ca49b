package cli

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"berth.dev/pkg/process"
)

// Streams is what commands read, write and know of their surroundings.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal says whether Out is one, and so can be drawn over.
	Terminal bool
	Env      func(string) string
	Now      func() time.Time
}

// Standard is the streams of this process.
func Standard() Streams {
	info, err := os.Stdout.Stat()
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		Terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
		Env:      os.Getenv,
		Now:      time.Now,
	}
}

// app is what the commands share.
type app struct {
	Streams
	flags gatewayFlags
	// every is the time between two looks of a watch.
	every time.Duration
	// quiet is how long a stream of a job's events is silent after a cursor when
	// there is no event after it.
	quiet func(job, cursor string) time.Duration
}

// New makes the root command with the commands that ask a gateway. Add the
// others to it.
func New(s Streams) *cobra.Command {
	return newRoot(&app{Streams: s, every: time.Second, quiet: func(string, string) time.Duration { return time.Second }})
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "berth",
		Short: "Reserve whole batches of executors for the workers of a job",
		Long: `Berth reserves whole batches of executors for the workers of a job, all or none.

Exit codes: 0 done, 1 failed, 2 bad usage, 3 not found, 4 unavailable.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return process.FlagError(err) })
	root.AddCommand(
		a.apply(),
		a.cancel(),
		a.get(),
		a.describe(),
		a.explain(),
		a.events(),
		a.disable(),
		a.enable(),
		a.drain(),
		a.clearQuarantine(),
		a.flush(),
		a.resign(),
		a.doctor(),
		a.markReady(),
		a.version(),
	)
	return root
}

// Run runs a command line and answers the exit code of the process. It ends
// early when ctx does.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	markFailures(root)
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitCode(nil)
	}
	err = asUsage(ran, err)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	writeError(root.ErrOrStderr(), err)
	return exitCode(err)
}
