package replay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
)

// Report is the result of a run. Batches = Granted + Waiting + Withdrawn + Ended.
type Report struct {
	Executors int `json:"executors"`
	// Batches and Workers are the numbers of batches and workers in the plan.
	Batches int `json:"batches"`
	Workers int `json:"workers"`
	// Granted batches got a lease, Waiting batches did not. Withdrawn batches were
	// cancelled before they were granted, because the trace deletes them. Ended batches
	// ended without a lease for another reason.
	Granted   int `json:"granted"`
	Waiting   int `json:"waiting"`
	Withdrawn int `json:"withdrawn"`
	Ended     int `json:"ended"`
	// Cancelled is the number of batches that were cancelled because the trace deletes them,
	// including granted batches.
	Cancelled int `json:"cancelled"`
	// WaitingFor has the reasons why batches are pending, the most frequent reason first.
	WaitingFor []WaitingFor `json:"waitingFor"`
	// Wait has percentiles of the time for which granted batches were pending.
	Wait Percentiles `json:"waitMillis"`
	// AskedSeconds is the time until all requests were acknowledged. Seconds is the duration
	// of the whole run.
	AskedSeconds float64 `json:"askedSeconds"`
	Seconds      float64 `json:"seconds"`

	// The remaining fields are the results of the audit. With more than one snapshot the
	// auditor missed a part of the history.
	audit.Stats
	ViolationCount int               `json:"violationCount"`
	Violations     []audit.Violation `json:"violations"`
}

// WaitingFor is a reason why batches are pending.
type WaitingFor struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Batches int    `json:"batches"`
	Workers int    `json:"workers"`
	// First is the first listed batch that is pending for this reason.
	First string `json:"first"`
}

// Percentiles has percentiles of durations in milliseconds.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// percentiles returns percentiles by the nearest-rank method. For an empty list it
// returns the zero value.
func percentiles(list []time.Duration) Percentiles {
	if len(list) == 0 {
		return Percentiles{}
	}
	sorted := slices.Sorted(slices.Values(list))
	at := func(percent int) float64 {
		rank := (len(sorted)*percent + 99) / 100
		return float64(sorted[max(1, rank)-1].Microseconds()) / 1000
	}
	return Percentiles{P50: at(50), P90: at(90), P99: at(99), Max: at(100)}
}

// report returns the result of the run.
func (r *runner) report(ctx context.Context, requested time.Duration) (*Report, error) {
	t := r.outcomes.tally()
	waitingFor, err := r.waitingFor(ctx, t.waiting)
	if err != nil {
		return nil, err
	}
	report := &Report{
		Batches: len(r.plan.Batches), Workers: r.plan.Workers(),
		Granted: t.count[Granted], Waiting: t.count[Waiting], Withdrawn: t.count[Withdrawn], Ended: t.count[Ended],
		Cancelled: t.cancelled, WaitingFor: waitingFor, Wait: percentiles(t.waits),
		AskedSeconds: requested.Seconds(), Seconds: time.Since(r.begun).Seconds(),
		Violations: []audit.Violation{},
	}
	r.auditor.Look(func(a *audit.Auditor) {
		left := a.Quiesced()
		report.Stats = a.Stats()
		report.ViolationCount = a.Count() + len(left)
		report.Violations = append(append(report.Violations, a.Violations()...), left...)
	})
	return report, nil
}

// waitingFor returns the reasons why the given batches are pending.
func (r *runner) waitingFor(ctx context.Context, waiting map[client.Key]*Batch) ([]WaitingFor, error) {
	list := []WaitingFor{}
	if len(waiting) == 0 {
		return list, nil
	}
	type why struct{ reason, message string }
	at := map[why]int{}
	queued := &berthv1.ListReservationsRequest{State: berthv1.Reservation_QUEUED, PageSize: 1000}
	for reservation, err := range r.api.List(ctx, queued) {
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		b := waiting[client.KeyOf(reservation)]
		if b == nil {
			continue
		}
		w := why{reservation.GetReason(), reservation.GetMessage()}
		i, known := at[w]
		if !known {
			i = len(list)
			at[w] = i
			list = append(list, WaitingFor{Reason: w.reason, Message: w.message, First: b.Key.String()})
		}
		list[i].Batches++
		list[i].Workers += int(b.Workers)
	}
	slices.SortStableFunc(list, func(a, b WaitingFor) int { return cmp.Compare(b.Batches, a.Batches) })
	return list, nil
}

// maxReasons is the maximum number of reasons in the text. The JSON has all reasons.
const maxReasons = 10

// Write writes the report as text for people.
func (r *Report) Write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, fmt.Sprintf(format, args...))
	}
	row("batches", "%d with %d workers, on %d executors", r.Batches, r.Workers, r.Executors)
	row("granted", "%d", r.Granted)
	row("withdrawn", "%d deleted by the trace before they were granted", r.Withdrawn)
	if r.Ended > 0 {
		row("ended", "%d without a lease, for another reason", r.Ended)
	}
	row("waiting", "%d", r.Waiting)
	for _, f := range r.WaitingFor[:min(len(r.WaitingFor), maxReasons)] {
		row("", "%d with %d workers: %s %s (first: %s)", f.Batches, f.Workers, f.Reason, f.Message, f.First)
	}
	if more := len(r.WaitingFor) - maxReasons; more > 0 {
		row("", "and %d more reasons", more)
	}
	row("cancelled", "%d", r.Cancelled)
	row("wait", "p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms", r.Wait.P50, r.Wait.P90, r.Wait.P99, r.Wait.Max)
	row("took", "%.1f s for all requests, %.1f s in total", r.AskedSeconds, r.Seconds)
	row("etcd", "%d leases for %d workers, %d ever running, %d started twice, audited up to revision %d",
		r.LeasesGranted, r.WorkersLeased, r.WorkersRunning, r.StartedTwice, r.Revision)
	row("violations", "%d", r.ViolationCount)
	for _, v := range r.Violations {
		row("", "%s", v)
	}
	return w.Flush()
}

// Save writes a report as JSON, unless the name of the file is empty.
func Save(file string, report any) error {
	if file == "" {
		return nil
	}
	text, err := json.Marshal(report)
	if err == nil {
		err = os.WriteFile(file, append(text, '\n'), 0o644)
	}
	if err != nil {
		return fault.New(fault.Invalid, fault.ReasonInvalid, "--report: cannot write %s", file).Because(err)
	}
	return nil
}
