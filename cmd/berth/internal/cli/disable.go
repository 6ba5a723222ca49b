package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
	"berth.dev/pkg/wire"
)

// attributesHelp is the help text of --attributes.
const attributesHelp = "select executors with all of these attributes, KEY=VALUE[,KEY=VALUE…]"

// selector returns a selector of executors by ID or by attributes. The command line must
// have either IDs or attributes.
func selector(cmd *cobra.Command, ids []string, attributes map[string]string) (*berthv1.ExecutorSelector, error) {
	if (len(ids) == 0) == (len(attributes) == 0) {
		return nil, badUsage(cmd, "name executors by ID or with --attributes, not both")
	}
	return &berthv1.ExecutorSelector{Ids: ids, Attributes: attributes}, nil
}

func (a *app) disable() *cobra.Command {
	var (
		attributes      map[string]string
		lasts           time.Duration
		until           string
		reason, request string
		output          string
	)
	cmd := a.calls(&cobra.Command{
		Use:   "disable ID… | --attributes KEY=VALUE,…",
		Short: "Exclude executors from allocation",
		Long: `Exclude executors from allocation until the request expires or is undone. The
request also applies to executors with these IDs or attributes that register later.
Workers on the executors keep running. Several requests may disable one executor.
Unknown executors, and attributes that no executor has, are reported (exit code 3);
the others are disabled.`,
		ValidArgsFunction: a.complete(executorNames),
		Example:           "  berth disable ex-1 ex-2 --for 2h --reason 'new kernel'\n  berth disable --attributes zone=a",
		RunE: func(cmd *cobra.Command, ids []string) error {
			chosen, err := selector(cmd, ids, attributes)
			if err != nil {
				return err
			}
			expire, err := expiry(cmd, a.Now(), lasts, until)
			if err != nil {
				return err
			}
			body := &berthv1.DisableExecutorsRequest{RequestId: request, Selector: chosen, Reason: reason,
				ExpireTime: wire.Timestamp(expire)}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if err := a.checkIDs(ctx, c, cmd, ids); err != nil {
					return err
				}
				answer, err := c.Disable(ctx, body)
				if err != nil {
					return err
				}
				if err := a.object(output, answer, show.Disabled(answer, expire, a.Now()),
					answer.GetRequestId()); err != nil {
					return err
				}
				if answer.GetExecutors() == 0 && len(attributes) > 0 {
					return noneHas(ctx, c, attributes, "; the request applies when one registers")
				}
				return notRegistered(ctx, c, answer.GetUnknown())
			})
		},
	})
	cmd.Flags().StringToStringVar(&attributes, "attributes", nil, attributesHelp)
	outputFlag(cmd.Flags(), &output, textFormats...)
	holdFlags(cmd, &lasts, &until, &reason)
	cmd.Flags().StringVar(&request, "request", "",
		"name of the request, for berth enable; repeating it changes nothing (default: a random name)")
	return cmd
}

// maxListed is the number of unknown executors that an error names.
const maxListed = 10

// notRegistered returns an error that names unknown executors, and those with similar IDs. It returns
// nil if all executors are known.
func notRegistered(ctx context.Context, c *client.Client, unknown []string) error {
	if len(unknown) == 0 {
		return nil
	}
	names := strings.Join(unknown[:min(len(unknown), maxListed)], ", ")
	if more := len(unknown) - maxListed; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fault.New(fault.NotFound, fault.ReasonNotFound,
		"no executor is registered as %s; the request applies when one registers%s", names,
		fault.DidYouMean(unknown[0], executorIDs(ctx, c)))
}

// noneHas returns an error that names attributes, and similar ones, if no executor has all of the attributes.
func noneHas(ctx context.Context, c *client.Client, attributes map[string]string, effect string) error {
	page, err := c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: 1, Attributes: attributes})
	if err != nil || len(page.GetExecutors()) > 0 {
		return err
	}
	page, _ = c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: pageSize}) // only for similar attributes
	known := map[string]bool{}
	for _, e := range page.GetExecutors() {
		for key, value := range e.GetAttributes() {
			known[key+"="+value] = true
		}
	}
	var text, similar string
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		pair := key + "=" + attributes[key]
		if text += ", " + pair; !known[pair] {
			similar = cmp.Or(similar, fault.DidYouMean(pair, maps.Keys(known)))
		}
	}
	return fault.New(fault.NotFound, fault.ReasonNotFound, "no executor has the attributes %s%s%s", text[2:], effect,
		similar)
}

// checkEnabled returns the reason why there was nothing to undo, if it is not that the executors are enabled:
// no executor has one of the IDs or has the attributes, or no executor shows the request. The name of a
// request in place of an ID gets the command that undoes the request.
func checkEnabled(ctx context.Context, c *client.Client, ids []string, attributes map[string]string,
	request string) error {
	if len(attributes) > 0 {
		return noneHas(ctx, c, attributes, "")
	}
	page, _ := c.ExecutorsPage(ctx, &berthv1.ListExecutorsRequest{PageSize: pageSize}) // only for similar IDs and requests
	requests := map[string]bool{}
	for _, e := range page.GetExecutors() {
		for _, m := range e.GetDisabled() {
			requests[m.GetRequestId()] = true
		}
	}
	if request != "" {
		return fault.New(fault.NotFound, fault.ReasonNotFound,
			"there is no request %s: it never existed, was undone or has expired%s", request,
			fault.DidYouMean(request, maps.Keys(requests)))
	}
	for _, id := range ids {
		_, err := c.Executor(ctx, id)
		switch {
		case err == nil:
		case !fault.Is(err, fault.ReasonNotFound):
			return err
		case requests[id]:
			return fault.New(fault.NotFound, fault.ReasonNotFound,
				"there is no executor %s, but a request with this name: berth enable --request %s", id, id)
		default:
			return unknownName("executor", id, namesOf(page.GetExecutors(), (*berthv1.Executor).GetId))
		}
	}
	return nil
}

// holdFlags adds the flags for the duration and the reason of a request.
func holdFlags(cmd *cobra.Command, lasts *time.Duration, until, reason *string) {
	cmd.Flags().DurationVar(lasts, "for", 0, "duration of the request, such as 2h (default: until it is undone)")
	cmd.Flags().StringVar(until, "until", "", "time at which the request expires, such as 2026-01-02T15:04:05Z")
	cmd.Flags().StringVar(reason, "reason", "", "reason of the request, shown to other users")
}

// expiry returns the time at which a request expires. It returns the zero time if the
// request does not expire.
func expiry(cmd *cobra.Command, now time.Time, lasts time.Duration, until string) (time.Time, error) {
	switch {
	case lasts != 0 && until != "":
		return time.Time{}, badUsage(cmd, "give either --for or --until")
	case lasts < 0:
		return time.Time{}, badUsage(cmd, "--for must not be negative, got %v", lasts)
	case lasts > 0:
		return now.Add(lasts), nil
	case until == "":
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, until)
	if err != nil {
		return time.Time{}, badUsage(cmd, "--until must be a time such as 2026-01-02T15:04:05Z, got %q", until)
	}
	return at, nil
}

func (a *app) enable() *cobra.Command {
	var (
		attributes      map[string]string
		request, output string
	)
	cmd := a.calls(&cobra.Command{
		Use:   "enable ID… | --attributes KEY=VALUE,… | --request NAME",
		Short: "Undo requests to disable or drain executors",
		Long: `Undo requests to disable or drain executors: the request with a name, or all
requests with the given IDs or attributes. If a request also names other IDs, the
command removes only the given IDs from the request. An executor is allocated again
when no request applies to the executor. A request that does not exist, and attributes
that no executor has, are reported (exit code 3).`,
		Example:           "  berth enable ex-1 ex-2\n  berth enable --request patch",
		ValidArgsFunction: a.complete(executorNames),
		RunE: func(cmd *cobra.Command, ids []string) error {
			body := &berthv1.EnableExecutorsRequest{DisableRequestId: request}
			if request == "" || len(ids)+len(attributes) > 0 {
				chosen, err := selector(cmd, ids, attributes)
				if err != nil {
					return err
				}
				body.Selector = chosen
			}
			if body.Selector != nil && request != "" {
				return badUsage(cmd, "give either --request or the executors")
			}
			return a.call(cmd, func(ctx context.Context, c *client.Client) error {
				if err := a.checkIDs(ctx, c, cmd, ids); err != nil {
					return err
				}
				count, err := c.Enable(ctx, body)
				if err != nil {
					return err
				}
				if count == 0 {
					if err := checkEnabled(ctx, c, ids, attributes, request); err != nil {
						return err
					}
				}
				return a.object(output, &berthv1.EnableExecutorsAnswer{Undone: int32(count)}, show.Enabled(count), request)
			})
		},
	})
	cmd.Flags().StringToStringVar(&attributes, "attributes", nil, attributesHelp)
	outputFlag(cmd.Flags(), &output, "text", "json", "yaml")
	cmd.Flags().StringVar(&request, "request", "", "name of the request to undo")
	return cmd
}
