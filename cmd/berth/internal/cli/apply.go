package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/internal/cli/jobfile"
	"berth.dev/cmd/berth/internal/cli/show"
)

func (a *app) apply() *cobra.Command {
	var path, output string
	var dryRun bool
	cmd := a.calls(&cobra.Command{
		Use:   "apply -f FILE",
		Short: "Apply the reservations, SKUs and pools of a job file",
		Long: `Apply a job file (YAML or JSON): create or change the reservation in each document.
A document with 'kind: sku' or 'kind: pool' goes into the catalog. The command reads
the whole file before it sends the documents in order. If a document is rejected, the
command sends the others and exits with the code of the first error. If no gateway
answers in time, it sends no more documents. Applying a file again changes nothing.

Workers that have executors keep the task and the policies with which they got them.
The command then prints UPDATED, and which fields apply later, to workers that are
started later, or do not apply. If fields do not apply, it exits with code 5. It lists the
workers that 'shrink: STOP_HIGHEST' stops; --dry-run names them in a warning.

You can edit and apply the output of 'berth get reservations|skus|pools -o yaml'.

With --dry-run the command changes nothing. It prints the differences between the latest
request in the cluster and the file as a unified diff, and exits with code 5 if there
are differences and with code 0 otherwise.`,
		Example: "  berth apply -f job.yaml\n  berth apply -f job.yaml --dry-run\n  berth get reservations train/gpu/main -o yaml | berth apply -f -",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 0 && path != "":
				return badUsage(cmd, "unexpected argument %q; usage: %s", args[0], usageOf(cmd))
			case len(args) > 0:
				path = args[0]
			case path == "":
				return badUsage(cmd, "--file is required; usage: %s", usageOf(cmd))
			}
			documents, err := a.read(path)
			if err != nil {
				return err
			}
			for _, document := range documents {
				for _, warning := range document.Warnings {
					fmt.Fprintf(a.Err, "berth: warning: %s: %s\n", document.Place, warning)
				}
			}
			return a.connected(cmd, func(ctx context.Context, c *client.Client) error {
				if dryRun {
					return a.diffAll(ctx, c, documents, output)
				}
				results := printer{app: a, output: output}
				err := a.eachDocument(documents, func(document jobfile.Document) error {
					return a.applyOne(ctx, c, document, &results)
				})
				if err == nil && results.differs {
					return errDiffers
				}
				return err
			})
		},
	})
	cmd.Flags().StringVarP(&path, "file", "f", "", "job file to apply; - reads standard input")
	outputFlag(cmd.Flags(), &output, textFormats...)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print differences to the cluster instead of changing it")
	_ = cmd.MarkFlagFilename("file", "yaml", "yml", "json") // fails only for an unknown flag
	return cmd
}

func (a *app) read(path string) ([]jobfile.Document, error) {
	if path == "-" {
		return jobfile.Parse("standard input", a.In)
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fault.New(fault.Invalid, "", "the job file %s does not exist", path)
	}
	if err != nil {
		return nil, fault.New(fault.Invalid, "", "cannot read the job file: %v", err)
	}
	defer file.Close() //nolint:errcheck // the file is only read
	if info, err := file.Stat(); err == nil && info.IsDir() {
		return nil, fault.New(fault.Invalid, "", "the job file %s is a directory; name a file", path)
	}
	return jobfile.Parse(path, file)
}

// eachDocument calls f for every document and prints the errors of rejected documents. It
// stops at any other error, because the next document would fail in the same way.
func (a *app) eachDocument(documents []jobfile.Document, f func(jobfile.Document) error) error {
	var first error
	rejected := 0
	for _, document := range documents {
		err := f(document)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", document.Place, err)
		if kind := fault.Of(err).Kind; len(documents) == 1 || kind == fault.Unavailable || kind == fault.Internal {
			return err
		}
		writeError(a.Err, err)
		if rejected++; first == nil {
			first = err
		}
	}
	if first == nil {
		return nil
	}
	return fault.New(fault.Of(first).Kind, "", "%d of %d documents were rejected", rejected, len(documents))
}

func (a *app) applyOne(ctx context.Context, c *client.Client, document jobfile.Document, results *printer) error {
	ctx, cancel := a.limited(ctx)
	defer cancel()
	switch {
	case document.SKU != nil:
		held := a.heldUntil(ctx, c, document.SKU)
		sku, err := c.PutSKU(ctx, document.SKU)
		if err != nil {
			return err
		}
		if !held.IsZero() {
			fmt.Fprintf(a.Err, "berth: warning: %s: the file has no scale.holdUntil, so the hold until %s has ended\n",
				document.Place, held.Format(time.RFC3339))
		}
		return results.object(sku, "sku "+sku.GetName()+" stored", sku.GetName())
	case document.Pool != nil:
		pool, err := c.PutPool(ctx, document.Pool)
		if err != nil {
			return err
		}
		return results.object(pool, "pool "+pool.GetName()+" stored", pool.GetName())
	}
	body := document.Reservation
	if document.UID != "" && len(body.Workers) == 0 {
		if err := fillWorkers(ctx, c, document); err != nil {
			return err
		}
	}
	stops := a.willStop(ctx, c, body)
	answer, err := c.Reserve(ctx, body)
	if err != nil {
		return err
	}
	text := show.Applied(answer)
	if stops != "" && answer.GetChange() != berthv1.UpsertReservationRequest_UNCHANGED {
		text += "\n  " + stops
	}
	if err := results.object(answer, text, named(client.KeyOf(answer))); err != nil {
		return err
	}
	results.differs = results.differs || len(show.NotApplied(answer)) > 0
	return nil
}

// willStop says which workers a reservation of a job file stops. An error of the reads does not keep the
// reservation from being applied.
func (a *app) willStop(ctx context.Context, c *client.Client, r *berthv1.Reservation) string {
	file, err := upsertOf(r)
	if err != nil {
		return ""
	}
	stops, _, err := surplus(ctx, c, file)
	if err != nil {
		return ""
	}
	return stopsText(stops)
}

// heldUntil returns the end of a hold in force that a SKU without a hold would replace; zero
// if there is none. An error of the read does not keep the SKU from being stored.
func (a *app) heldUntil(ctx context.Context, c *client.Client, sku *berthv1.Sku) time.Time {
	if sku.GetScale().GetHoldUntil() != nil {
		return time.Time{}
	}
	stored, err := c.SKU(ctx, sku.GetName())
	until := stored.GetScale().GetHoldUntil()
	if err != nil || until == nil || !a.Now().Before(until.AsTime()) {
		return time.Time{}
	}
	return until.AsTime()
}

// fillWorkers adds the workers to a document that Berth printed in a list, because lists
// omit the workers. With only a count, the document would request the first worker
// indexes of the stage, and these may be other workers.
func fillWorkers(ctx context.Context, c *client.Client, document jobfile.Document) error {
	body := document.Reservation
	now, err := c.Get(ctx, client.KeyOf(body))
	switch {
	case fault.Is(err, fault.ReasonNotFound), err == nil && now.GetUid() != document.UID:
		return fault.New(fault.Conflict, fault.ReasonEpochMismatch,
			"version %s is no longer the newest, and a list does not contain its workers", document.UID)
	case err != nil:
		return err
	}
	if len(now.GetWorkers()) == int(body.Count) {
		body.Workers, body.Count = now.GetWorkers(), 0
	}
	return nil
}

// print writes a line to standard output.
func (a *app) print(line string) error {
	_, err := io.WriteString(a.Out, line+"\n")
	return err
}
