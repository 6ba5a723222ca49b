package cli

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/wire"
)

func (a *app) events() *cobra.Command {
	var (
		follow        bool
		since, output string
		tail          int
		kinds         []string
	)
	cmd := a.calls(&cobra.Command{
		Use:   "events [reservation] JOB[/STAGE[/NAME]]",
		Short: "Show the events of a job's reservations and workers",
		Long: `Show the events of a job's reservations and workers, oldest first: of the whole job,
of a stage, or of one reservation. Without --follow the command ends after the last
event that is stored. With -o json each event is one line with its cursor. To continue
after an event, pass its cursor in --since.

An event of an earlier day has its date. If a message lists the rounds of a reservation,
the line has their number and the last cause; -o json has them all. On a terminal, lines
are cut to its width.`,
		Args:              oneTarget,
		Example:           "  berth events train -f\n  berth events train --tail 20 --kind worker_failed,worker_lost\n  berth events train/gpu -o json --since 104.3",
		ValidArgsFunction: a.completeTarget(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := target(cmd, args, 1)
			if err != nil {
				return err
			}
			if tail < 0 {
				return badUsage(cmd, "--tail must not be negative, got %d", tail)
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				selected := func(stream iter.Seq2[*berthv1.Event, error]) iter.Seq2[*berthv1.Event, error] {
					return ofKinds(kinds, only(key, stream))
				}
				cursor := since
				stored := noting(&cursor, a.stored(ctx, c, key.Job, since))
				if cmd.Flags().Changed("tail") {
					stored = lastOf(selected(stored), tail)
				}
				stream := stored
				if follow {
					stream = func(yield func(*berthv1.Event, error) bool) {
						for event, err := range stored {
							if !yield(event, err) || err != nil {
								return
							}
						}
						c.Events(ctx, key.Job, cursor)(yield)
					}
				}
				count, err := a.writeEvents(selected(stream), output)
				if err == nil && count == 0 && !follow {
					limited, cancel := a.limited(ctx)
					defer cancel()
					if err := checkKey(limited, c, key); err != nil {
						return err
					}
					if cmd.Flags().Changed("tail") && tail == 0 { // there may be some
						return nil
					}
					which := ""
					if len(kinds) > 0 {
						which = " of kind " + strings.Join(kinds, " or ")
					}
					fmt.Fprintf(a.Err, "No events%s of %s.\n", which, named(key))
				}
				return err
			})
		},
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for further events")
	cmd.Flags().StringVar(&since, "since", "",
		"cursor of the last event seen (default: begin with the oldest stored event)")
	cmd.Flags().IntVarP(&tail, "tail", "n", 0, "only the last events that are stored, and with --follow those that follow")
	names := wire.EnumNames(berthv1.Event_KIND_UNSPECIFIED.Descriptor())
	cmd.Flags().Var(&choices{list: names, set: func(values []string) { kinds = append(kinds, values...) }}, "kind",
		"only events of these kinds, such as WORKER_FAILED,WORKER_LOST")
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}

// ofKinds returns the events of a stream that have one of the kinds; no kinds are all kinds.
func ofKinds(kinds []string, stream iter.Seq2[*berthv1.Event, error]) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		for event, err := range stream {
			in := len(kinds) == 0 || slices.Contains(kinds, event.GetKind().String())
			if (err != nil || in) && !yield(event, err) {
				return
			}
		}
	}
}

// noting returns a stream that stores the cursor of each of its events.
func noting(cursor *string, stream iter.Seq2[*berthv1.Event, error]) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		for event, err := range stream {
			if err == nil {
				*cursor = event.GetCursor()
			}
			if !yield(event, err) {
				return
			}
		}
	}
}

// lastOf returns the last events of a stream that ends.
func lastOf(stream iter.Seq2[*berthv1.Event, error], most int) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		var last []*berthv1.Event
		for event, err := range stream {
			if err != nil {
				yield(nil, err)
				return
			}
			if last = append(last, event); len(last) > most {
				last = last[1:]
			}
		}
		for _, event := range last {
			if !yield(event, nil) {
				return
			}
		}
	}
}

// only returns the events of the reservations that a key selects. A key without a stage or
// a name selects all stages of the job or all names of the stage.
func only(key client.Key, stream iter.Seq2[*berthv1.Event, error]) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		for event, err := range stream {
			selected := (key.Stage == "" || key.Stage == event.GetStage()) &&
				(key.Name == "" || key.Name == event.GetReservation())
			if (err != nil || selected) && !yield(event, err) {
				return
			}
		}
	}
}

// writeEvents writes the events of a stream as they arrive, and counts them.
func (a *app) writeEvents(stream iter.Seq2[*berthv1.Event, error], output string) (count int, err error) {
	lines := printer{app: a, output: output}
	for event, err := range stream {
		if err != nil {
			return count, err
		}
		if output == "json" {
			var line []byte
			if line, err = show.JSONLine(event); err == nil {
				_, err = a.Out.Write(line)
			}
		} else {
			err = lines.object(event, show.CutEvent(event, a.Now(), a.page().Width), event.GetCursor())
		}
		if err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

// stored returns the stored events. It waits at most for the timeout until the first event or the
// end, and between two events. If no gateway can read the events within that time, it returns an
// error with the reason, because there may be events.
func (a *app) stored(ctx context.Context, c *client.Client, job, since string) iter.Seq2[*berthv1.Event, error] {
	return func(yield func(*berthv1.Event, error) bool) {
		reading, stop := context.WithCancel(ctx)
		defer stop()
		late := time.AfterFunc(a.flags.timeout, stop)
		defer late.Stop()
		for event, err := range c.StoredEvents(reading, job, since) {
			late.Stop()
			if !yield(event, err) {
				return
			}
			late.Reset(a.flags.timeout)
		}
	}
}
