package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"berth.dev/api/fault"
)

// Streams are the inputs and outputs of commands, and their environment.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal reports whether Out is a terminal. On a terminal, each update of a watch
	// overwrites the last.
	Terminal bool
	// Size returns the columns and lines of the terminal, or 0 if they are unknown.
	Size func() (width, height int)
	Env  func(string) string
	// ConfigDir returns the user's directory for configurations. Without it, there is no
	// configuration file by default.
	ConfigDir func() (string, error)
	Now       func() time.Time
}

// Standard returns the streams of this process.
func Standard() Streams {
	out := int(os.Stdout.Fd())
	return Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		// A dumb terminal cannot move its cursor.
		Terminal: term.IsTerminal(out) && os.Getenv("TERM") != "dumb",
		Size: func() (width, height int) {
			width, height, _ = term.GetSize(out) // 0 if it is unknown
			return width, height
		},
		Env:       os.Getenv,
		ConfigDir: os.UserConfigDir,
		Now:       time.Now,
	}
}

// app is the state that commands share.
type app struct {
	Streams
	flags gatewayFlags
	// noColor is the flag --no-color.
	noColor bool
	// every is the interval of the polls of a watch.
	every time.Duration
	// retried has the error of the last attempt that the client has repeated, or nil.
	retried *atomic.Pointer[fault.Error]
}

// New returns the root command with the commands that call a gateway. The caller adds the
// other commands.
func New(s Streams) *cobra.Command {
	return newRoot(&app{Streams: s, every: time.Second})
}

func newRoot(a *app) *cobra.Command {
	a.retried = &atomic.Pointer[fault.Error]{}
	a.flags.proxy = proxyOf(a.Env)
	root := &cobra.Command{
		Use:   "berth",
		Short: "Schedule gangs: reserve executors for all workers of a gang, or none",
		Long: `Berth schedules gangs: it reserves executors for all workers of a gang, or none.

Exit codes: 0 success, 1 failure, 2 invalid usage, 3 not found, 4 unavailable,
5 differences found by 'berth apply --dry-run', or fields that do not apply.`,
		Example:       "  berth dev\n  berth apply -f job.yaml\n  berth get reservations\n  berth --version",
		Version:       thisBuild().String(),
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(cmd, args, "unknown command %q", args[0])
		}
		return cmd.Help()
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultVersionFlag()
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	root.AddCommand(
		a.apply(),
		a.bind(),
		a.cancel(),
		a.get(),
		a.describe(),
		a.explain(),
		a.events(),
		a.logs(),
		a.signal(),
		a.wait(),
		a.disable(),
		a.enable(),
		a.drain(),
		a.clearQuarantine(),
		a.holdScaling(),
		a.volumes(),
		a.plan(),
		a.flush(),
		a.resign(),
		a.doctor(),
		a.top(),
		a.inspect(),
		a.config(),
		a.markReady(),
		a.version(),
		a.whoami(),
	)
	a.completeFlags(root)
	return root
}

// Run runs a command line and returns the exit code of the process. When ctx ends, Run
// stops the command.
func Run(ctx context.Context, root *cobra.Command, args []string) int {
	markFailures(root)
	root.SetArgs(args)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitCode(nil)
	}
	err = asUsage(ran, unknownFlag(ran, err, args))
	if ctx.Err() != nil {
		if untilInterrupted(ran) {
			return exitCode(nil)
		}
		err = errInterrupted
	}
	if !errors.Is(err, errDiffers) {
		writeError(root.ErrOrStderr(), err)
	}
	return exitCode(err)
}

// untilInterrupted reports whether a command follows or watches until it is interrupted. It then
// succeeds, even if it still reads what is stored or waits for a gateway.
func untilInterrupted(cmd *cobra.Command) bool {
	for _, name := range []string{"follow", "watch"} {
		if flag := cmd.Flag(name); flag != nil && flag.Value.String() == "true" {
			return true
		}
	}
	return false
}
