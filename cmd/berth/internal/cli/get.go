package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/show"
)

// pageSize is the largest page size of the API. Commands read whole lists, so larger
// pages need fewer calls.
const pageSize = 1000

// view is a kind of object that get lists.
type view struct {
	fetch func(ctx context.Context, c *client.Client) (proto.Message, error)
	table func(m proto.Message, now time.Time, wide bool) *show.Table
	// empty is printed instead of a table that has no rows.
	empty string
	// check returns an error if the table has no rows because it selects unknown names; nil for none.
	check func(ctx context.Context, c *client.Client) error
}

// checked returns a view whose empty list is an error if a check fails: a misspelled name is not an
// empty result.
func (v view) checked(check func(ctx context.Context, c *client.Client) error) view {
	v.check = check
	return v
}

// viewOf returns a view. list takes the objects out of the answer of fetch, and table
// formats them.
func viewOf[M proto.Message, L any](
	empty string, fetch func(*client.Client, context.Context) (M, error), list func(M) L,
	table func(L, time.Time, bool) *show.Table,
) view {
	return view{
		fetch: func(ctx context.Context, c *client.Client) (proto.Message, error) { return fetch(c, ctx) },
		table: func(m proto.Message, now time.Time, wide bool) *show.Table { return table(list(m.(M)), now, wide) },
		empty: empty,
	}
}

// several returns a view of the objects with the given names. If there is only one name,
// the object is the whole answer, and otherwise answer returns a list.
func several[M, A proto.Message](
	names []string, get func(*client.Client, context.Context, string) (M, error), answer func([]M) A, list func(A) []M,
	table func([]M, time.Time, bool) *show.Table,
) view {
	if len(names) == 1 {
		return viewOf("", func(c *client.Client, ctx context.Context) (M, error) { return get(c, ctx, names[0]) }, one, table)
	}
	return viewOf("", func(c *client.Client, ctx context.Context) (A, error) {
		var all []M
		for _, name := range names {
			m, err := get(c, ctx, name)
			if err != nil {
				return answer(nil), err
			}
			all = append(all, m)
		}
		return answer(all), nil
	}, list, table)
}

// one returns a list of one element.
func one[M any](m M) []M { return []M{m} }

// same returns its argument.
func same[M any](m M) M { return m }

// getFlags are the flags of every get command.
type getFlags struct {
	output string
	watch  bool
}

// asKind adds a hint to the error about an argument that is no reservation, if it has the form KIND/NAME.
func asKind(cmd *cobra.Command, args []string, err error) error {
	word, name, _ := strings.Cut(args[0], "/")
	kind := kindOf(cmd.Root(), word)
	if !fault.Is(err, fault.ReasonNotFound) || len(args) > 1 || kind == nil || kind.Args(kind, []string{name}) != nil {
		return err
	}
	return hinted{err, "did you mean '" + kind.CommandPath() + " " + quoted([]string{name}) + "'?"}
}

func (a *app) get() *cobra.Command {
	var flags getFlags
	reservations := a.getReservations(&flags)
	cmd := a.calls(&cobra.Command{
		Use: "get reservations|jobs|pending|assignments|members|executors|volumes|usage|skus|pools|tenants|leaders|findings|audit",
		Long: `List objects of a kind, or show those with the given names. 'berth get JOB/STAGE' is
short for 'berth get reservations JOB/STAGE'.`,
		Short:   "List jobs, reservations, queues, workers, executors, volumes, leaders, findings or tenants",
		Example: "  berth get reservations\n  berth get train/gpu -o wide\n  berth get leaders -w",
		Args:    cobra.ArbitraryArgs,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if !strings.Contains(prefix, "/") { // the kinds
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return reservations.ValidArgsFunction(cmd, args, prefix)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var kinds []string
			for _, child := range cmd.Commands() {
				kinds = append(kinds, child.Name())
			}
			switch {
			case len(args) == 0:
				return badUsage(cmd, "missing kind: must be one of %s", strings.Join(kinds, ", "))
			case !slices.ContainsFunc(args, func(arg string) bool { return !strings.Contains(arg, "/") }):
				reservations.SetContext(cmd.Context())
				return asKind(cmd, args, reservations.RunE(reservations, args))
			}
			err := unknown(cmd, args, "unknown kind %q: must be one of %s", args[0], strings.Join(kinds, ", "))
			var usage usageError
			if errors.As(err, &usage) && usage.hint == "" {
				usage.hint = fmt.Sprintf("to list the reservations of a job with this name: 'berth get reservations %s'",
					quoted(args[:1]))
				return usage
			}
			return err
		},
	})
	outputFlag(cmd.PersistentFlags(), &flags.output, listFormats...)
	cmd.PersistentFlags().BoolVarP(&flags.watch, "watch", "w", false, "poll every second and print changes")
	cmd.AddCommand(
		reservations,
		a.getJobs(&flags),
		a.getPending(&flags),
		a.getAssignments(&flags),
		a.getMembers(&flags),
		a.getExecutors(&flags),
		a.getVolumes(&flags),
		a.getUsage(&flags),
		a.getSKUs(&flags),
		a.getPools(&flags),
		a.getTenants(&flags),
		a.kind(&flags, leaders, "leaders", "List the leader and the replicas of each service", "leader",
			"replicas", "services", "servers"),
		a.kind(&flags, findings, "findings", "List problems that an operator should know about", "finding"),
		a.getAudit(&flags),
	)
	return cmd
}

// show fetches and writes a view, once or, with --watch, continuously.
func (a *app) show(cmd *cobra.Command, flags *getFlags, v view) error {
	return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
		if flags.watch {
			return a.watch(ctx, c, flags.output, v)
		}
		limited, cancel := a.limited(ctx)
		defer cancel()
		m, err := v.fetch(limited, c)
		if err != nil {
			return err
		}
		text, err := v.render(m, flags.output, a.Now(), a.page())
		if err != nil {
			return err
		}
		if v.check != nil && v.table(m, a.Now(), false).Empty() {
			if err := v.check(limited, c); err != nil {
				return err
			}
		}
		if len(text) == 0 {
			fmt.Fprintln(a.Err, v.empty)
		}
		_, err = a.Out.Write(text)
		return err
	})
}

// render returns the text of an answer. The text is empty if the table has no rows.
func (v view) render(m proto.Message, output string, now time.Time, style show.Style) ([]byte, error) {
	table := v.table(m, now, output == "wide")
	return render(output, table.Styled(style), table.Names(), show.Part{Value: m})
}

// render returns the parts of an answer in a machine-readable format, or the given text
// or names.
func render(output, text, names string, parts ...show.Part) ([]byte, error) {
	switch output {
	case "json":
		return show.JSON(parts...)
	case "yaml":
		return show.YAML(parts...)
	case "name":
		return []byte(names), nil
	}
	return []byte(text), nil
}

// write prints the parts of an answer. See render.
func (a *app) write(output, text, names string, parts ...show.Part) error {
	encoded, err := render(output, text, names, parts...)
	if err == nil {
		_, err = a.Out.Write(encoded)
	}
	return err
}

// object prints one object. See printer.object.
func (a *app) object(output string, m proto.Message, text, name string) error {
	return (&printer{app: a, output: output}).object(m, text, name)
}

// value prints a value that is not a message.
func (a *app) value(output string, v any, text, names string) error {
	return WriteValue(a.Out, output, v, text, names)
}

// WriteValue writes a value that is not a message: as text, as names, or in a
// machine-readable format.
func WriteValue(w io.Writer, output string, v any, text, names string) error {
	encoded, err := []byte(text), error(nil)
	switch output {
	case "json":
		encoded, err = show.ValueJSON(v)
	case "yaml":
		encoded, err = show.ValueYAML(v)
	case "name":
		encoded = []byte(names)
	}
	if err == nil {
		_, err = w.Write(encoded)
	}
	return err
}

// printer prints objects one after another in a format.
type printer struct {
	*app
	output string
	// printed reports whether an object was printed, differs whether fields of one do not apply.
	printed, differs bool
}

// object prints an object in the format of the printer: its line of text, its name, or
// the message.
func (p *printer) object(m proto.Message, text, name string) error {
	line, err := render(p.output, text+"\n", name+"\n", show.Part{Value: m})
	if err == nil && p.printed && p.output == "yaml" {
		line = append([]byte("---\n"), line...)
	}
	if err == nil {
		p.printed = true
		_, err = p.Out.Write(line)
	}
	return err
}
