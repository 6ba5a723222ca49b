package cli

import (
	"context"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/model"
)

// Bounds of the completion of one word. A user waits for it, and reads the values.
const (
	completionTime   = time.Second
	completionValues = 100
)

// names lists the names of objects, in any order and possibly repeatedly. An error ends
// the list without a message, because a shell shows errors in the middle of a command
// line.
type names func(ctx context.Context, c *client.Client, prefix string) iter.Seq[string]

// complete returns a completion with the values that a gateway lists. It omits values
// that the command line has already, and reads no further than completionValues.
func (a *app) complete(list names) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if a.applyContext(cmd, completionTime) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		addresses, options, err := a.flags.options()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := client.Dial(addresses, options...)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		var values []string
		for value := range list(ctx, c, prefix) {
			if !strings.HasPrefix(value, prefix) || !harmless(value) || slices.Contains(args, value) ||
				slices.Contains(values, value) {
				continue
			}
			if values = append(values, value); len(values) == completionValues {
				break
			}
		}
		slices.Sort(values)
		return values, cobra.ShellCompDirectiveNoFileComp
	}
}

// harmless reports whether a value consists of valid names. A shell may evaluate other
// characters, and the values come from a gateway that may be wrong.
func harmless(value string) bool {
	for part := range strings.SplitSeq(value, "/") {
		if !model.ValidName(part, len(value)) {
			return false
		}
	}
	return true
}

// single limits a completion to one argument.
func single(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, prefix)
	}
}

// completeTarget completes the argument of target with the given number of parts, or with
// as many parts as the word has.
func (a *app) completeTarget(least int) cobra.CompletionFunc {
	complete := single(a.complete(func(ctx context.Context, c *client.Client, prefix string) iter.Seq[string] {
		job, rest, found := strings.Cut(prefix, "/")
		if !found && least == 1 {
			return jobNames(ctx, c, prefix)
		}
		request := &berthv1.ListReservationsRequest{PageSize: pageSize}
		if found {
			request.Job = job
		}
		parts := max(least, 1+strings.Count(prefix, "/"))
		if stage, _, found := strings.Cut(rest, "/"); found {
			request.Stage = stage
		}
		return each(c.List(ctx, request), func(r *berthv1.Reservation) string {
			all := []string{r.GetJob(), r.GetStage(), r.GetName()}
			return strings.Join(all[:min(parts, len(all))], "/")
		})
	}))
	return func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
		values, directive := complete(cmd, bare(args), prefix)
		if strings.Count(prefix, "/") == 0 && least == 1 {
			directive |= cobra.ShellCompDirectiveNoSpace // a stage may follow
		}
		return values, directive
	}
}

// each returns the names of the objects of a stream until its first error.
func each[M any](stream iter.Seq2[M, error], name func(M) string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for m, err := range stream {
			if err != nil || !yield(name(m)) {
				return
			}
		}
	}
}

// from returns names for a call that lists all objects in one answer.
func from[A any, M any](call func(*client.Client, context.Context) (A, error), list func(A) []M,
	name func(M) string) names {
	return func(ctx context.Context, c *client.Client, _ string) iter.Seq[string] {
		return func(yield func(string) bool) {
			answer, err := call(c, ctx)
			if err != nil {
				return
			}
			for _, m := range list(answer) {
				if !yield(name(m)) {
					return
				}
			}
		}
	}
}

// The names that arguments and flags complete.
var (
	// jobNames lists the jobs that have not ended before the other jobs that Berth keeps.
	jobNames names = func(ctx context.Context, c *client.Client, _ string) iter.Seq[string] {
		return func(yield func(string) bool) {
			for name := range each(c.Jobs(ctx, &berthv1.ListJobsRequest{PageSize: pageSize}), (*berthv1.Job).GetName) {
				if !yield(name) {
					return
				}
			}
			each(c.List(ctx, &berthv1.ListReservationsRequest{PageSize: pageSize}), (*berthv1.Reservation).GetJob)(yield)
		}
	}
	executorNames names = func(ctx context.Context, c *client.Client, _ string) iter.Seq[string] {
		return each(c.Executors(ctx, &berthv1.ListExecutorsRequest{PageSize: pageSize}), (*berthv1.Executor).GetId)
	}
	skuNames   = from((*client.Client).SKUs, (*berthv1.ListSkusAnswer).GetSkus, (*berthv1.Sku).GetName)
	poolNames  = from((*client.Client).Pools, (*berthv1.ListPoolsAnswer).GetPools, (*berthv1.Pool).GetName)
	groupNames = from((*client.Client).Pending, (*berthv1.ListPendingAnswer).GetGroups, (*berthv1.PendingGroup).GetId)
)

// completeFlags adds completion to the flags of a command and its subcommands, by the type
// or the name of the flag. Arguments without a completion complete to nothing instead of
// files.
func (a *app) completeFlags(cmd *cobra.Command) {
	lists := map[string]names{
		"job": jobNames, "executor": executorNames, "sku": skuNames, "pool": poolNames, "group": groupNames,
	}
	complete := func(f *pflag.Flag) {
		if f.Name == "context" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, a.completeContext) // fails only for a second completion
			return
		}
		completion := cobra.CompletionFunc(cobra.NoFileCompletions)
		switch value := f.Value.(type) {
		case *choices:
			completion = cobra.FixedCompletions(value.list, cobra.ShellCompDirectiveNoFileComp)
		case *choice:
			completion = cobra.FixedCompletions(value.list, cobra.ShellCompDirectiveNoFileComp)
		default:
			if list := lists[f.Name]; list != nil {
				completion = a.complete(list)
			} else if strings.Contains(f.Usage, "file") {
				return // the shell completes files
			}
		}
		_ = cmd.RegisterFlagCompletionFunc(f.Name, completion) // fails only for a second completion
	}
	cmd.LocalFlags().VisitAll(complete)
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, child := range cmd.Commands() {
		a.completeFlags(child)
	}
}
