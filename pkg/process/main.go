package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth.dev/api/rpc"
)

// Command returns a command that loads the configuration of a process and calls run.
func Command[C any](use, short string, defaults C, run func(ctx context.Context, config C) error) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: use, Short: short,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badConfig(nil, "%s takes no arguments, got %q", cmd.CommandPath(), args[0])
			}
			return nil
		},
		SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config := defaults
			if err := Load(cmd.Flags(), file, &config); err != nil {
				return err
			}
			defer notifyStopping(cmd.Context())()
			return run(cmd.Context(), config)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badConfig(nil, "%v", FlagError(err)) })
	cmd.Flags().StringVar(&file, "config", os.Getenv(EnvPrefix+"_CONFIG"),
		"YAML configuration file ["+EnvPrefix+"_CONFIG]")
	AddFlags(cmd.Flags(), defaults)
	return cmd
}

// FlagError adds the permitted values to the error of an invalid flag. It returns any other error
// unchanged.
func FlagError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	if wanted := wantedOf[flag.Value.Type()]; wanted != "" {
		return fmt.Errorf("--%s: must be %s, got %q", flag.Name, wanted, invalid.GetValue())
	}
	return err
}

// wantedOf describes the permitted values of each type of flag.
var wantedOf = map[string]string{
	"duration": "a duration such as 90s, 10m or 1h30m",
	"bool":     "true or false",
	"int":      "a whole number", "int64": "a whole number", "uint64": "a whole number of 0 or more",
	"float64": "a number",
	"time":    "a time such as 2026-01-02T15:04:05Z", "stringToString": "name=value[,name=value…]",
}

// Main runs a command, exits the process and never returns. SIGTERM or SIGINT ends the
// context of the command; a second signal ends the process at once. The exit code is the
// result of rpc.ExitCode.
func Main(cmd *cobra.Command) {
	FloorHeap()
	ctx, stop := SignalContext(context.Background())
	err := cmd.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", cmd.Name(), err)
	}
	os.Exit(rpc.ExitCode(err))
}

// SignalContext returns a context that ends at the first SIGTERM or SIGINT. After that
// the signals have their default effect, so that a second signal ends the process even if
// the shutdown hangs.
func SignalContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}
