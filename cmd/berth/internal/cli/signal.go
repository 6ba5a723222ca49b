package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/model"
)

func (a *app) signal() *cobra.Command {
	var requestID, output string
	cmd := a.calls(&cobra.Command{
		Use:   "signal JOB[/STAGE[/INDEX[.NUMBER]]] SIGNAL",
		Short: "Send a signal to the running workers of a stage",
		Long: `Send a signal to the RUNNING workers of a stage, or to one of them: each gets it in its
own process, and its children do not. JOB is enough if the job has one stage. SIGNAL is
the name of a signal, such as USR1 or SIGHUP. A process without a handler for most
signals ends, and 'restart' then decides if Berth starts its worker again. To stop
workers, use 'berth cancel'.

Workers whose executor is not connected do not get the signal later. The command lists
them and fails. Repeat it with the printed --request-id: workers that have got the signal
do not get it again.`,
		Example: "  berth signal train/gpu USR1\n  berth signal web/replica/3 HUP",
		Args:    cobra.ExactArgs(2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return model.SignalNames(), cobra.ShellCompDirectiveNoFileComp
			}
			return single(a.complete(workerNames))(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := strconv.Atoi(args[1]); err == nil {
				err := fmt.Errorf("SIGNAL must be the name of a signal, such as USR1, got %q", args[1])
				if line := signalLine(append([]string{"signal"}, args...)); line != "" {
					return usageError{err, cmd.CommandPath(), "did you mean 'berth " + line + "'?"}
				}
				return usageError{error: err, command: cmd.CommandPath()}
			}
			worker := &berthv1.ReadOutputRequest{}
			one, err := workerTarget(cmd, args[0], worker)
			if err != nil {
				return err
			}
			request := &berthv1.SignalWorkersRequest{Job: worker.GetJob(), Signal: args[1],
				RequestId: cmp.Or(requestID, rand.Text())}
			if one {
				request.Workers = []*berthv1.WorkerID{{Index: worker.GetIndex(), Number: worker.GetNumber()}}
			}
			what, name := args[0], args[1]
			if signal, known := model.ParseSignal(name); known {
				name = string(signal)
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if worker.GetStage() == "" {
					if err := onlyStage(ctx, c, cmd, worker, args[1]); err != nil {
						return err
					}
					what += "/" + worker.GetStage()
				}
				request.Stage = worker.GetStage()
				answer, err := c.SignalWorkers(ctx, request)
				if err != nil {
					return err
				}
				failure := orUnknown(ctx, c, client.Key{Job: request.GetJob(), Stage: request.GetStage()},
					notSignalled(what, request, answer))
				if output == "text" && fault.Is(failure, fault.ReasonNotFound) {
					return failure
				}
				return cmp.Or(a.object(output, answer, show.Signalled(what, name, answer), what), failure)
			})
		},
	})
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().StringVar(&requestID, "request-id", "", "ID of the signal, to repeat it for workers that have not got it (default: a new one)")
	return cmd
}

// notSignalled returns the error about workers that did not get a signal.
func notSignalled(what string, request *berthv1.SignalWorkersRequest, answer *berthv1.SignalWorkersAnswer) error {
	failed, all := answer.GetFailedCount(), answer.GetFailedCount()+answer.GetSignalled()
	switch {
	case all == 0:
		return fault.New(fault.NotFound, fault.ReasonNotFound, "%s has no worker that is RUNNING", what)
	case failed == 0:
		return nil
	}
	kind, hint := fault.NotFound, ""
	for _, f := range answer.GetFailed() {
		switch fault.Reason(f.GetReason()) {
		case fault.ReasonNotFound:
		case fault.ReasonUnsupported:
			kind = max(kind, fault.Precondition)
		default:
			kind, hint = fault.Unavailable, "repeat the command with --request-id "+request.GetRequestId()+
				": no worker gets the signal twice"
		}
	}
	err := error(fault.New(kind, "", "%d of %d workers did not get the signal", failed, all))
	if hint != "" {
		err = hinted{err, hint}
	}
	return err
}

// signalNumbers has the names of the signals that people write as numbers. The numbers are those of Linux,
// which POSIX requires, and those of USR1 and USR2 on most of its architectures.
var signalNumbers = map[string]string{"1": "HUP", "2": "INT", "3": "QUIT", "6": "ABRT", "9": "KILL", "10": "USR1",
	"12": "USR2", "14": "ALRM", "15": "TERM"}

// signalLine returns the command line with the meaning of one that names the signal as kill does, or as
// scancel does: -USR1, -9, -s USR1 or 10. It returns "" if no signal or not exactly one target is named.
func signalLine(args []string) string {
	var targets []string
	name := ""
	for _, arg := range args[slices.Index(args, "signal")+1:] {
		word := strings.TrimLeft(arg, "-")
		if word != arg {
			for _, flag := range []string{"signal=", "s=", "s"} {
				if value, found := strings.CutPrefix(word, flag); found && word != "signal" {
					word = value
					break
				}
			}
		}
		word = cmp.Or(signalNumbers[word], word)
		signal, known := model.ParseSignal(word)
		switch {
		case known:
			name = strings.TrimPrefix(string(signal), "SIG")
		case !strings.HasPrefix(arg, "-"):
			targets = append(targets, arg)
		}
	}
	if len(targets) != 1 || name == "" {
		return ""
	}
	target := quoted(targets)
	if name != "KILL" {
		return "signal " + target + " " + name
	}
	switch parts := strings.Split(target, "/"); { // a worker that is killed by a signal may be restarted
	case len(parts) == 3 && strings.Contains(parts[2], "."):
		return "cancel " + parts[0] + "/" + parts[1] + " --workers " + parts[2] + " --grace 0s"
	case len(parts) == 3:
		return "signal " + target + " KILL"
	}
	return "cancel " + target + " --grace 0s"
}
