package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// errDiffers is the result of a dry run that found differences, and of an apply with fields that
// do not apply. It is no failure, so it has no message.
var errDiffers = errors.New("the cluster differs")

// exitDiffers is the exit code of errDiffers. It follows those of package rpc.
const exitDiffers = 5

var errInterrupted = fault.New(fault.Precondition, "", "interrupted")

// failure is an error of a command that ran. An error that is not a failure is an error
// of cobra about the command line.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

// usageError is the error of an invalid command line.
type usageError struct {
	error
	command string
	// hint replaces the reference to the help of the command.
	hint string
}

func (u usageError) Unwrap() error { return u.error }

// hinted is the error of a command that ran, with a hint.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

// badUsage returns a usageError from a command that runs.
func badUsage(cmd *cobra.Command, format string, args ...any) error {
	return usageError{error: fmt.Errorf(format, args...), command: cmd.CommandPath()}
}

// markFailures wraps the errors of running commands in failure, and adds the usage to errors
// about arguments, for a command and its subcommands.
func markFailures(cmd *cobra.Command) {
	if validate := cmd.Args; validate != nil && cmd.RunE != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if validate(cmd, args) == nil {
				return nil
			}
			return wrongArgs(cmd, args, validate)
		}
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if err := run(cmd, args); err != nil {
				return failure{err}
			}
			return nil
		}
	}
	for _, child := range cmd.Commands() {
		markFailures(child)
	}
}

// wrongArgs returns the error about too few or too many arguments.
func wrongArgs(cmd *cobra.Command, args []string, validate cobra.PositionalArgs) error {
	for n := len(args) - 1; n >= 0; n-- {
		if validate(cmd, args[:n]) == nil {
			return fmt.Errorf("unexpected argument %q; usage: %s", args[n], usageOf(cmd))
		}
	}
	return fmt.Errorf("missing argument; usage: %s", usageOf(cmd))
}

// usageOf returns the usage line of a command with its arguments.
func usageOf(cmd *cobra.Command) string {
	_, arguments, _ := strings.Cut(cmd.Use, " ")
	return strings.TrimSpace(cmd.CommandPath() + " " + arguments)
}

// requiredFlags is the prefix of cobra's error about missing flags.
const requiredFlags = "required flag(s) "

func asUsage(cmd *cobra.Command, err error) error {
	var f failure
	if errors.As(err, &f) {
		return f.error
	}
	if errors.As(err, &usageError{}) {
		return err
	}
	if missing, found := strings.CutPrefix(err.Error(), requiredFlags); found {
		names, _, _ := strings.Cut(missing, " not set")
		names = strings.ReplaceAll(strings.ReplaceAll(names, `", "`, `, --`), `"`, "")
		err = fmt.Errorf("--%s is required; usage: %s", names, usageOf(cmd))
	}
	return usageError{error: err, command: cmd.CommandPath()}
}

func exitCode(err error) int {
	if errors.Is(err, errDiffers) {
		return exitDiffers
	}
	var usage usageError
	if errors.As(err, &usage) {
		return rpc.ExitUsage
	}
	return rpc.ExitCode(err)
}

// writeError writes an error as one line. If there is a hint, writeError adds it below.
func writeError(w io.Writer, err error) {
	fmt.Fprintf(w, "berth: %s\n", sentence(err))
	if hint := hintFor(err); hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", hint)
	}
}

func sentence(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) {
		return firstLine(err.Error())
	}
	// The text before the message of the fault names the place of the error.
	text := strings.TrimSuffix(err.Error(), f.Error()) + f.Message
	if f.Message == "" {
		text += f.Kind.String()
	}
	for _, field := range f.Fields {
		if !strings.Contains(text, field.Problem) {
			text += fmt.Sprintf("; %s: %s", field.Name, field.Problem)
		}
	}
	if f.Cause != nil {
		why := causeOf(f.Cause)
		if f.Kind == fault.Unavailable {
			why = dialled(f.Meta["gateways"], fault.Of(f.Cause).Message)
		}
		if !strings.Contains(text, why) {
			text += ": " + why
		}
	}
	if f.Reason != "" && f.Reason != fault.ReasonInvalid {
		text += fmt.Sprintf(" (%s)", f.Reason)
	}
	return firstLine(text)
}

// causeOf describes the cause of an error on this machine: the words of the operating system, such
// as permission denied. The error itself names the file or the address.
func causeOf(err error) string {
	var system syscall.Errno
	if errors.As(err, &system) {
		return system.Error()
	}
	return fault.Of(err).Message
}

// firstLine keeps an error on one line.
func firstLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// failedLookup matches a network error about a name that cannot be resolved.
var failedLookup = regexp.MustCompile(`dial tcp: lookup (\S+?)(?: on \S+)?: `)

// dialled removes gRPC's prefix from a network error, or describes the error in a few words. If there is
// only one gateway, dialled also removes the address.
func dialled(gateways, message string) string {
	if at := strings.Index(message, throughProxy); at >= 0 {
		return strings.ReplaceAll(strings.TrimSuffix(message[at:], `"`), "connect: ", "")
	}
	if _, rest, found := strings.Cut(message, "dial tcp "); found {
		message = strings.ReplaceAll(strings.TrimSuffix(rest, `"`), "connect: ", "")
	} else if name := failedLookup.FindStringSubmatch(message); name != nil {
		message = rpc.Cause(errors.New(message))
		if strings.Contains(gateways, ", ") {
			message = name[1] + ": " + message
		}
	} else if strings.Contains(message, "http2: frame too large") {
		message = rpc.Cause(errors.New(message))
	}
	return strings.TrimPrefix(message, gateways+": ")
}

// throughProxy begins the error of a connection through a proxy.
const throughProxy = "through the proxy "

func hintFor(err error) string {
	var usage usageError
	if errors.As(err, &usage) {
		return cmp.Or(usage.hint, fmt.Sprintf("see '%s --help'", usage.command))
	}
	var with hinted
	if errors.As(err, &with) {
		return with.hint
	}
	f := fault.Of(err)
	text := sentence(err)
	switch {
	case strings.Contains(text, throughProxy):
		return "set NO_PROXY to the hosts that need no proxy, such as those of --gateway"
	case strings.Contains(text, "it may require TLS"):
		return "call with TLS: set --tls-ca, or use --gateway https://HOST:PORT"
	case strings.Contains(text, "the client calls with TLS"):
		return "call in plain text: use --gateway http://HOST:PORT without --tls-ca, --tls-cert and --token-file"
	case strings.Contains(text, "it speaks another protocol"):
		return "check the host and port of --gateway; if it requires TLS, set --tls-ca, or use --gateway https://HOST:PORT"
	case strings.Contains(text, "unexpected HTTP status code received from server"),
		strings.HasSuffix(text, "it is another server (UNAVAILABLE)"):
		return "another server answers at this address: check the host, port and path of --gateway, and that a proxy passes gRPC on"
	case strings.Contains(text, "Berth has no method /") && !strings.Contains(text, "Berth has no method /berth."):
		return "the path of --gateway is not the gateway's --base-path"
	case f.Kind == fault.Denied && strings.Contains(text, "no certificate and no bearer token"):
		return "prove your role with --tls-cert and --tls-key, or with --token-file"
	case f.Meta["gateways"] != "" && (strings.Contains(text, "has no leader") ||
		strings.Contains(text, "no replica of")):
		return "see 'berth get leaders'"
	case f.Meta["etcd"] != "":
		return "set the members with --etcd-endpoints HOST:PORT; 'berth dev' prints the address of its etcd when it starts"
	case f.Meta["gateways"] != "" && f.Reason == fault.ReasonUnavailable:
		return "set another gateway with --gateway HOST:PORT or BERTH_GATEWAY, or run one here with 'berth dev'"
	case f.Reason == fault.ReasonRegistryNotReady:
		return "run 'berth mark-ready' when all job services have repeated their requests"
	case f.Reason == fault.ReasonEventsCompacted:
		return "omit --since to begin with the oldest stored event; 'berth get reservations' shows the current state"
	case f.Reason == fault.ReasonEpochMismatch:
		return "the reservation has changed: read it again with 'berth get reservations JOB/STAGE/NAME -o yaml'"
	}
	return ""
}
