package cli

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/wire"
)

func (a *app) logs() *cobra.Command {
	request := &berthv1.ReadOutputRequest{}
	var stderr, all bool
	var lines int
	var output string
	cmd := a.calls(&cobra.Command{
		Use:   "logs JOB[/STAGE[/INDEX[.NUMBER]]]",
		Short: "Print the output of a worker, or of all workers of a stage",
		Long: `Print what a worker writes to its standard output, or with --stderr to its standard
error. The command prints the output of the newest worker of the index; to select an
earlier one, add its number. Without an index it prints the output of all workers of the
stage, at most 100, each line after its worker, unless the stage has one worker. The
stage may be omitted if the job has one.

With --follow the command waits for further output until the worker has ended. If the
worker waits for an executor, the command waits too. Without an index it follows all
workers of the stage, also those that Berth starts later in place of others, until all
have ended and none is queued again. It survives restarts of gateways, services and
agents.

Executors keep the newest files of the output, and the files of ended workers for a
while. Berth finds the executor of an ended worker in the events of its job. If no event
names the executor, name it with --executor.`,
		Example: "  berth logs train/gpu -f\n  berth logs train/gpu/0 -f\n  berth logs train/gpu/3.1 --stderr --tail 100\n" +
			"  berth logs train/gpu --all",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: single(a.complete(workerNames)),
		RunE: func(cmd *cobra.Command, args []string) error {
			named, err := workerTarget(cmd, args[0], request)
			if err != nil {
				return err
			}
			if stderr {
				request.Stream = berthv1.ReadOutputRequest_STDERR
			}
			switch {
			case all && cmd.Flags().Changed("tail"):
				return badUsage(cmd, "--all excludes --tail: set only one of them")
			case lines < 0:
				return badUsage(cmd, "--tail must not be negative, got %d", lines)
			case all:
				request.Offset = proto.Int64(0)
			}
			if !cmd.Flags().Changed("tail") {
				lines = -1
			} else if request.Tail = proto.Int32(0); lines > 0 {
				request.Tail = proto.Int32(wire.MaxTail)
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				read := func() error { return a.writeOutput(ctx, c, request, lines, output) }
				if named {
					err := a.untilBegun(ctx, c, request, read)
					if request.GetExecutor() != "" {
						return err
					}
					limited, cancel := a.limited(ctx)
					defer cancel()
					return orUnknown(limited, c, client.Key{Job: request.GetJob(), Stage: request.GetStage()}, err)
				}
				limited, cancel := a.limited(ctx)
				defer cancel()
				if request.GetStage() == "" {
					if err := onlyStage(limited, c, cmd, request); err != nil {
						return err
					}
				}
				found, err := workersOf(limited, c, request.GetJob(), request.GetStage())
				stage := request.GetJob() + "/" + request.GetStage()
				several := len(found.numbers) > 1 || request.GetFollow() && output == "text" && len(found.numbers) > 0
				switch {
				case err != nil:
					return err
				case !several:
					if err := a.onlyWorker(ctx, c, request); err != nil {
						return err
					}
					return a.untilBegun(ctx, c, request, read)
				case output != "text" || request.GetExecutor() != "" || len(found.numbers) > maxFollowed:
					return fault.New(fault.Invalid, "", "%s has %d workers: name one of them as %s/INDEX", stage,
						len(found.numbers), stage)
				case request.GetFollow():
					return a.followStage(ctx, c, request, found, lines)
				}
				return a.stageOutput(ctx, c, request, found, lines)
			})
		},
	})
	flags := cmd.Flags()
	flags.BoolVarP(&request.Follow, "follow", "f", false, "wait for further output until the worker has ended")
	flags.IntVarP(&lines, "tail", "n", 0, "begin with the last lines, of at most the last MiB (default: the last 64 KiB)")
	flags.BoolVar(&all, "all", false, "begin with the oldest output that the executor has")
	flags.BoolVar(&stderr, "stderr", false, "print the standard error (default: the standard output)")
	flags.StringVar(&request.Executor, "executor", "", "ID of the worker's executor (default: Berth finds it)")
	outputFlag(flags, &output, "text", "json")
	return cmd
}

// workerTarget parses JOB[/STAGE[/INDEX[.NUMBER]]] into a request. It reports whether the
// argument names the index.
func workerTarget(cmd *cobra.Command, text string, request *berthv1.ReadOutputRequest) (named bool, err error) {
	parts := strings.Split(text, "/")
	bad := badUsage(cmd, "%q is not JOB[/STAGE[/INDEX[.NUMBER]]]; usage: %s", text, usageOf(cmd))
	if len(parts) > 3 || slices.Contains(parts, "") {
		return false, bad
	}
	request.Job = parts[0]
	if len(parts) > 1 {
		request.Stage = parts[1]
	}
	if len(parts) < 3 {
		return false, nil
	}
	index, number, numbered := strings.Cut(parts[2], ".")
	i, err := strconv.ParseUint(index, 10, 31)
	if err != nil {
		return false, bad
	}
	request.Index = int32(i)
	if numbered {
		n, err := strconv.ParseUint(number, 10, 31)
		if err != nil || n == 0 {
			return false, bad
		}
		request.Number = int32(n)
	}
	return true, nil
}

// onlyWorker sets the index of a request to that of the only worker of the stage.
func (a *app) onlyWorker(ctx context.Context, c *client.Client, request *berthv1.ReadOutputRequest) error {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	indexes := map[int32]bool{}
	for w, err := range c.Assignments(ctx, &berthv1.ListAssignmentsRequest{Job: request.GetJob(), PageSize: pageSize}) {
		if err != nil {
			return err
		}
		if w.GetStage() == request.GetStage() {
			indexes[w.GetIndex()], request.Index = true, w.GetIndex()
		}
	}
	stage := request.GetJob() + "/" + request.GetStage()
	if len(indexes) == 0 { // the record of a reservation outlives its assignments
		r, err := c.Get(ctx, client.Key{Job: request.GetJob(), Stage: request.GetStage()})
		if err != nil && !fault.Is(err, fault.ReasonNotFound) {
			return err
		}
		for _, id := range r.GetWorkers() {
			indexes[id.GetIndex()], request.Index = true, id.GetIndex()
		}
	}
	switch len(indexes) {
	case 0:
		return orUnknown(ctx, c, client.Key{Job: request.GetJob(), Stage: request.GetStage()},
			fault.New(fault.NotFound, fault.ReasonNotFound,
				"%s has no workers: name the index of an earlier worker as %s/INDEX", stage, stage))
	case 1:
		return nil
	}
	return fault.New(fault.Invalid, "", "%s has %d workers: name one of them as %s/INDEX", stage, len(indexes), stage)
}

// writeOutput writes the output of a worker, beginning with the last lines, or with the
// first part if lines is negative. The timeout limits the time to the first part
// and, without --follow, the time between two parts.
func (a *app) writeOutput(ctx context.Context, c *client.Client, request *berthv1.ReadOutputRequest,
	lines int, output string) error {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	late := time.AfterFunc(a.flags.timeout, stop)
	defer late.Stop()
	position, written := request.GetOffset(), 0
	var first, last *berthv1.ReadOutputAnswer
	var held []*berthv1.ReadOutputAnswer
	for part, err := range c.Output(reading, request) {
		if err != nil {
			return err
		}
		late.Stop()
		if !request.GetFollow() {
			late.Reset(a.flags.timeout)
		}
		if first == nil {
			first = part
		}
		// The last lines are known once the reader has reached the end that the first part stated.
		held = append(held, part)
		if lines >= 0 && part.GetOffset()+int64(len(part.GetData())) < first.GetEnd() {
			continue
		}
		if lines >= 0 {
			held, lines = lastLines(held, lines), -1
		}
		for _, part := range held {
			if skipped := part.GetOffset() - position; skipped > 0 && (last != nil || request.Offset != nil) {
				fmt.Fprintf(a.Err, "berth: %d bytes are missing here: the executor keeps only the newest output\n", skipped)
			}
			if err := a.writePart(part, output); err != nil {
				return err
			}
			last, position = part, part.GetOffset()+int64(len(part.GetData()))
			written += len(part.GetData())
		}
		held = nil
	}
	switch {
	case last == nil: // a reader that follows ends without an error
		if ctx.Err() == nil {
			f := fault.New(fault.Unavailable, fault.ReasonUnavailable, "no output of the worker within %v", a.flags.timeout)
			if retried := a.retried.Load(); retried != nil {
				f.Cause = retried
			}
			return f
		}
	case request.GetFollow() && last.GetComplete():
		fmt.Fprintf(a.Err, "berth: %s has ended\n", workerOf(request, last))
	case written == 0 && output == "text" && last.GetEnd() == 0:
		fmt.Fprintf(a.Err, "No output of %s on %s.\n", workerOf(request, last), last.GetExecutor())
	}
	return nil
}

// lastLines returns the end of an output that has at most the given number of lines.
func lastLines(parts []*berthv1.ReadOutputAnswer, lines int) []*berthv1.ReadOutputAnswer {
	var text []byte
	for _, part := range parts {
		text = append(text, part.GetData()...)
	}
	cut := len(text)
	for end := len(bytes.TrimSuffix(text, []byte{'\n'})); lines > 0 && cut > 0; lines-- {
		end = bytes.LastIndexByte(text[:max(end, 0)], '\n')
		cut = end + 1
	}
	for len(parts) > 1 && cut >= len(parts[0].GetData()) {
		cut -= len(parts[0].GetData())
		parts = parts[1:]
	}
	parts[0].Data = parts[0].GetData()[cut:]
	parts[0].Offset += int64(cut)
	return parts
}

func (a *app) writePart(part *berthv1.ReadOutputAnswer, output string) error {
	text := part.GetData()
	if output == "json" {
		var err error
		if text, err = show.JSONLine(part); err != nil {
			return err
		}
	}
	_, err := a.Out.Write(text)
	return err
}

func workerOf(request *berthv1.ReadOutputRequest, part *berthv1.ReadOutputAnswer) string {
	return fmt.Sprintf("%s/%s/%d.%d", request.GetJob(), request.GetStage(), request.GetIndex(), part.GetNumber())
}

// workerNames lists the workers with an assignment.
var workerNames names = func(ctx context.Context, c *client.Client, prefix string) iter.Seq[string] {
	request := &berthv1.ListAssignmentsRequest{PageSize: pageSize}
	if job, _, found := strings.Cut(prefix, "/"); found {
		request.Job = job
	}
	return each(c.Assignments(ctx, request), func(w *berthv1.Assignment) string {
		return fmt.Sprintf("%s/%s/%d", w.GetJob(), w.GetStage(), w.GetIndex())
	})
}
