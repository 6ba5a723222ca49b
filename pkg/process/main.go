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
	"berth.dev/pkg/yamlfile"
)

// Command returns a command that loads the configuration of a process and calls run.
func Command[C any](use, short string, defaults C, run func(ctx context.Context, config C) error) *cobra.Command {
	var file configFile
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
			if err := Load(cmd.Flags(), file.name, &config); err != nil {
				return err
			}
			defer notifyStopping(cmd.Context())()
			if cmd.Annotations[stopsOnHangup] == "" {
				daemons.Add(1)
				defer daemons.Add(-1)
			}
			return run(cmd.Context(), config)
		},
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badConfig(nil, "%v", FlagError(err)) })
	file = configFile{name: os.Getenv(EnvPrefix + "_CONFIG"), check: func(name string) (FileCheck, error) {
		config, flags := defaults, pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
		AddFlags(flags, defaults)
		return checkFile(flags, name, &config)
	}}
	cmd.Flags().Var(&file, configFlag, "YAML configuration file ["+EnvPrefix+"_CONFIG]")
	AddFlags(cmd.Flags(), defaults)
	return cmd
}

// configFlag is the flag that names the configuration file of a process.
const configFlag = "config"

// configFile is the value of configFlag.
type configFile struct {
	name  string
	check func(name string) (FileCheck, error)
}

func (f *configFile) String() string        { return f.name }
func (f *configFile) Set(name string) error { f.name = name; return nil }
func (f *configFile) Type() string          { return typeString }

// FileCheck is the result of the check of a configuration file.
type FileCheck struct {
	Problems []yamlfile.Problem
	// Warnings are values that are probably mistakes, and combinations of values that the process refuses.
	// Combinations are not problems of the file, because a flag or a variable may set the other value.
	Warnings []yamlfile.Problem
	// Set is the number of keys that are options of the process, and Unknown that of the others.
	Set, Unknown int
}

// CheckFile checks a configuration file of the process that a command runs. It starts nothing,
// reads no other file, and ignores the environment. isProcess is false if the command is not from
// Command. The error says why the file cannot be read.
func CheckFile(cmd *cobra.Command, name string) (check FileCheck, isProcess bool, err error) {
	flag := cmd.Flags().Lookup(configFlag)
	if flag == nil {
		return FileCheck{}, false, nil
	}
	file, isProcess := flag.Value.(*configFile)
	if !isProcess {
		return FileCheck{}, false, nil
	}
	check, err = file.check(name)
	return check, true, err
}

// checkFile checks a file. Afterwards config has its values.
func checkFile(flags *pflag.FlagSet, name string, config any) (check FileCheck, err error) {
	found, err := load(flags, name, config, func(string) (string, bool) { return "", false }, source{file: name})
	for _, p := range found {
		if p.combination || p.doubt {
			check.Warnings = append(check.Warnings, p.Problem)
			continue
		}
		check.Problems = append(check.Problems, p.Problem)
		if p.unknown {
			check.Unknown++
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Changed {
			check.Set++
		}
	})
	return check, err
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

// Main runs a command, exits the process and never returns. SIGTERM, SIGINT and SIGHUP have the
// effects of SignalContext. The exit code is the result of rpc.ExitCode.
func Main(cmd *cobra.Command) {
	FloorHeap(FloorService)
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
// the shutdown hangs. SIGHUP has the effect of HangupContext.
func SignalContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(parent, syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop)
	ctx, forget := HangupContext(ctx)
	return ctx, func() { forget(); stop() }
}
