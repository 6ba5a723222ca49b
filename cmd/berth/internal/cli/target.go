package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
)

// reservationWords are the words that may precede the name of a reservation.
var reservationWords = []string{"reservation", "reservations"}

// kindWords are the kinds that kubectl's form KIND/NAME may begin with.
var kindWords = append([]string{"executor", "executors"}, reservationWords...)

// bare returns the arguments without a leading word for reservations.
func bare(args []string) []string {
	if len(args) > 0 && slices.Contains(reservationWords, args[0]) {
		return args[1:]
	}
	return args
}

// oneTarget accepts the arguments of target.
func oneTarget(cmd *cobra.Command, args []string) error { return cobra.ExactArgs(1)(cmd, bare(args)) }

// target parses [reservation] JOB[/STAGE[/NAME]] with at least the given number of parts
// in the name. Omitted parts are empty. It is the only parser of arguments that name
// reservations, so all commands accept the same forms.
func target(cmd *cobra.Command, args []string, least int) (client.Key, error) {
	return parseTarget(cmd, bare(args)[0], len(bare(args)) < len(args), least)
}

// parseTarget parses one argument of target. worded reports whether a word for reservations
// precedes it.
func parseTarget(cmd *cobra.Command, text string, worded bool, least int) (client.Key, error) {
	parts := strings.Split(text, "/")
	if kind := parts[0]; len(parts) > 1 && !worded && slices.Contains(kindWords, kind) {
		return client.Key{}, badUsage(cmd,
			"%q: write the kind as a separate word, '%s %s'; for a job with the name %s, write 'reservation %s'",
			text, kind, strings.Join(parts[1:], "/"), kind, text)
	}
	if len(parts) < least || len(parts) > 3 || slices.Contains(parts, "") {
		form := [...]string{1: "JOB[/STAGE[/NAME]]", 2: "JOB/STAGE[/NAME]"}[least]
		return client.Key{}, badUsage(cmd, "%q is not %s; usage: %s", text, form, usageOf(cmd))
	}
	parts = append(parts, "", "")
	return client.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}, nil
}

// onReservation completes a command about one reservation: its arguments, its completion,
// its output flag and its connection. run must limit the time of its calls.
func (a *app) onReservation(cmd *cobra.Command, output *string,
	run func(ctx context.Context, c *client.Client, key client.Key) error) *cobra.Command {
	cmd.Use += " [reservation] JOB[/STAGE[/NAME]]"
	cmd.Args, cmd.ValidArgsFunction = oneTarget, a.completeTarget(2)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := target(cmd, args, 1)
		if err != nil {
			return err
		}
		return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
			return a.onOnly(ctx, c, cmd, key, run)
		})
	}
	outputFlag(cmd.PersistentFlags(), output, textFormats...)
	return a.calls(cmd)
}

// onOnly runs a command on the reservation that a key selects. A key without a stage or a name
// selects the only reservation of the job or the stage; of a stage with several, it selects the one
// with the default name.
func (a *app) onOnly(ctx context.Context, c *client.Client, cmd *cobra.Command, key client.Key,
	run func(ctx context.Context, c *client.Client, key client.Key) error) error {
	var missing error
	if key.Stage != "" {
		if missing = run(ctx, c, key); key.Name != "" || !fault.Is(missing, fault.ReasonNotFound) {
			return missing
		}
	}
	limited, cancel := a.limited(ctx)
	defer cancel()
	list, err := whole(&berthv1.ListReservationsRequest{Job: key.Job, Stage: key.Stage, PageSize: pageSize},
		(*client.Client).ListPage)(c, limited)
	if err != nil {
		return err
	}
	all := list.GetReservations()
	if living := slices.DeleteFunc(slices.Clone(all), func(r *berthv1.Reservation) bool {
		return client.Ended(r.GetState())
	}); len(living) > 0 {
		all = living
	}
	switch {
	case len(all) == 1 && client.KeyOf(all[0]) != key:
		return run(ctx, c, client.KeyOf(all[0]))
	case len(all) > 1:
		var lines []string
		for _, r := range all[:min(len(all), maxChoices)] {
			lines = append(lines, cmd.CommandPath()+" "+quoted([]string{named(client.KeyOf(r))}))
		}
		return usageError{fmt.Errorf("%s has %d reservations: name one of them", named(key), len(all)), cmd.CommandPath(),
			"did you mean '" + strings.Join(lines, "' or '") + "'?"}
	case missing != nil:
		return missing
	}
	return orUnknown(limited, c, client.Key{Job: key.Job},
		fault.New(fault.NotFound, fault.ReasonNotFound, "there is no reservation of job %s", key.Job))
}

// maxChoices is the maximum number of command lines that an error suggests.
const maxChoices = 5

// named returns the name of the reservations that a key selects, as in an argument.
func named(key client.Key) string {
	return strings.TrimRight(key.Job+"/"+key.Stage+"/"+key.Name, "/")
}

// workerIDs parses worker IDs of the form INDEX.NUMBER.
func workerIDs(cmd *cobra.Command, list []string) ([]*berthv1.WorkerID, error) {
	var ids []*berthv1.WorkerID
	for _, text := range list {
		index, number, _ := strings.Cut(strings.TrimSpace(text), ".")
		i, err := strconv.ParseInt(index, 10, 32)
		n, err2 := strconv.ParseInt(number, 10, 32)
		if errors.Join(err, err2) != nil {
			return nil, badUsage(cmd, "--workers must be INDEX.NUMBER, such as 2.1, got %q", text)
		}
		ids = append(ids, &berthv1.WorkerID{Index: int32(i), Number: int32(n)})
	}
	return ids, nil
}
