package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/store"
)

// check checks everything once the faults are over, and adds violations to the report.
func (r *run) check(ctx context.Context) {
	over := time.Now()
	r.settle(ctx, "after the faults")
	r.report.Rest = time.Since(over)
	r.expect(ctx, "workers", r.matching)
	r.startedOnce()
	r.keptData()
	r.terms(ctx)
	r.histories()
	r.streams(ctx)
	for _, job := range jobs() {
		if _, err := r.fleet.Client().CancelJob(ctx, job); err != nil {
			r.report.addViolation("cancel of job %s: %v", job, err)
		}
	}
	r.settle(ctx, "after everything was cancelled")
	r.failovers(ctx)
	r.expect(ctx, "workers", r.matching)
	r.expect(ctx, "leftovers", r.nothingLeased)
	r.audit(ctx)
	r.report.addViolations(r.report.floors())
}

// expect waits for a condition and adds a violation if it does not occur.
func (r *run) expect(ctx context.Context, condition string, missing func(context.Context) string) {
	if err := until(ctx, missing); err != nil {
		r.report.addViolation("%s: %v", condition, err)
	}
}

// settle waits until all processes are ready and nothing is in flight.
func (r *run) settle(ctx context.Context, when string) {
	r.expect(ctx, when, r.ready)
	r.expect(ctx, when, func(ctx context.Context) string {
		if err := r.follower.CatchUp(ctx); err != nil {
			return err.Error()
		}
		var left []audit.Violation
		r.follower.Look(func(a *audit.Auditor) { left = a.Quiesced() })
		if len(left) > 0 {
			return fmt.Sprintf("%d violations, the first: %v", len(left), left[0])
		}
		for version, err := range r.fleet.Client().List(ctx,
			&berthv1.ListReservationsRequest{State: berthv1.Reservation_CANCELLING, PageSize: 1000}) {
			if err != nil {
				return err.Error()
			}
			return fmt.Sprintf("%s is still being cancelled", client.KeyOf(version))
		}
		return ""
	})
}

// matching describes how the worker processes on the hosts differ from the records.
func (r *run) matching(ctx context.Context) string {
	var recorded, running []string
	for a, err := range r.fleet.Client().Assignments(ctx, &berthv1.ListAssignmentsRequest{PageSize: 1000}) {
		if err != nil {
			return err.Error()
		}
		if strings.HasPrefix(a.GetExecutor(), hostName+"-") {
			if a.GetState() == berthv1.Assignment_LOST && a.GetRequeued() {
				continue // its version lists it while another worker of the version runs
			}
			if a.GetState() != berthv1.Assignment_RUNNING {
				return fmt.Sprintf("a worker is still being started or stopped: %v", a)
			}
			recorded = append(recorded, fmt.Sprintf("%s/%s/%d.%d@%d on %s", a.GetJob(), a.GetStage(), a.GetIndex(),
				a.GetNumber(), a.GetEpoch(), a.GetExecutor()))
		}
	}
	for _, e := range environments(r.load.marks) {
		running = append(running, fmt.Sprintf("%s/%s/%s.%s@%s on %s", e["BERTH_JOB"], e["BERTH_STAGE"],
			e["BERTH_WORKER_INDEX"], e["BERTH_WORKER_NUMBER"], e["BERTH_EPOCH"], e["BERTH_EXECUTOR"]))
	}
	return unmatched(recorded, running)
}

// unmatched returns the workers whose number of processes differs from the number of their
// records. A worker with two processes was started twice.
func unmatched(recorded, running []string) string {
	count := map[string][2]int{}
	for n, workers := range [][]string{recorded, running} {
		for _, w := range workers {
			c := count[w]
			c[n]++
			count[w] = c
		}
	}
	var differ []string
	for _, w := range slices.Sorted(maps.Keys(count)) {
		if c := count[w]; c[0] != c[1] {
			differ = append(differ, fmt.Sprintf("%s: %d recorded, %d running", w, c[0], c[1]))
		}
	}
	return strings.Join(differ, "\n")
}

// environments returns the environments of the running workers that append their marks to
// a file.
func environments(marks string) []map[string]string {
	var all []map[string]string
	entries, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, entry := range entries {
		text, err := os.ReadFile(entry)
		if err != nil || !strings.Contains(string(text), marks) {
			continue // the process has exited, or it is not a worker of this run
		}
		environment := map[string]string{}
		for pair := range strings.SplitSeq(string(text), "\x00") {
			if name, value, ok := strings.Cut(pair, "="); ok {
				environment[name] = value
			}
		}
		if environment["BERTH_JOB"] != "" {
			all = append(all, environment)
		}
	}
	return all
}

// startedOnce checks that no worker has left the same mark twice.
func (r *run) startedOnce() {
	text, err := os.ReadFile(r.load.marks)
	if err != nil {
		r.report.addViolation("no worker wrote a marker: %v", err)
		return
	}
	seen := map[string]bool{}
	for mark := range strings.FieldsSeq(string(text)) {
		if seen[mark] {
			r.report.addViolation("%s was started twice", mark)
		}
		seen[mark] = true
	}
	r.report.Started = len(seen)
}

// keptData checks that no worker found another content in its volume than earlier workers
// have written to it, and that no worker index that waits for its volume got another one.
func (r *run) keptData() {
	if lost, err := os.ReadFile(filepath.Join(r.load.copies, "lost")); err == nil {
		r.report.addViolation("volumes lost their data: %s", strings.Join(strings.Fields(string(lost)), ", "))
	}
	copies, err := os.ReadDir(r.load.copies)
	if err != nil {
		r.report.addViolation("%v", err)
	}
	for _, entry := range copies {
		if filepath.Ext(entry.Name()) == "" && entry.Name() != "lost" {
			r.report.Volumes++
		}
	}
}

// terms waits until every service has a leader and adds the terms to the report.
func (r *run) terms(ctx context.Context) {
	r.expect(ctx, "leaders", func(ctx context.Context) string {
		answer, err := r.fleet.Client().Leaders(ctx)
		if err != nil {
			return err.Error()
		}
		r.report.Terms = map[string]int64{}
		for _, s := range answer.GetServices() {
			if s.GetLeader() != "" {
				r.report.Terms[s.GetService()] = s.GetTerm()
			}
		}
		for _, service := range services {
			if r.report.Terms[service] == 0 {
				return fmt.Sprintf("%s has no leader: %v", service, answer)
			}
		}
		return ""
	})
}

// histories checks the outcomes of the clients' calls.
func (r *run) histories() {
	h := r.load.history
	r.report.Calls, r.report.Unknown = h.counts()
	r.report.Longest, r.report.LongestCall = h.longest, h.slowest.String()
	r.report.Gap, r.report.GapAt = h.gap()
	for _, f := range r.report.Faults {
		if f.Kind.partitioned() && f.Skipped == "" {
			r.report.Partitioned += f.Ended - f.Begun
			r.report.PartitionAcks += h.changes(f.Begun, f.Ended)
		}
	}
	r.report.addCheck(h.check(func(key client.Key) bool { return key.Job == jobWaiting }, waitingModel))
	r.report.addCheck(h.check(func(key client.Key) bool { return key.Job != jobWaiting }, runningModel))
	r.report.addViolations(r.load.unexpected)
}

// streams compares the event streams with the events in etcd. It also checks that each
// acknowledged version has an event.
func (r *run) streams(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	queued, requeued := map[string]bool{}, map[string]bool{}
	r.report.Lifetimes = r.load.lifetimes
	var leased []time.Time
	for _, reader := range r.readers {
		held, err := storedEvents(ctx, r.store, reader.job)
		for attempt := 1; errors.Is(err, store.ErrAmbiguous) && store.Sleep(ctx, store.Backoff(attempt)) == nil; attempt++ {
			// A member of etcd that just rejoined may not know the leader yet.
			held, err = storedEvents(ctx, r.store, reader.job)
		}
		if err != nil {
			r.report.addViolation("events of %s: %v", reader.job, err)
			return
		}
		maps.Copy(queued, held.queued)
		maps.Copy(requeued, held.requeued)
		leased = append(leased, held.leased...)
		r.report.Restarted += held.restarted
		r.report.Expired += held.expired
		r.report.Bound += held.bound
		r.report.Events += len(held.cursors)
		r.report.addViolations(reader.check(ctx, held.cursors))
		r.report.Streamed += reader.delivered()
	}
	r.report.addViolations(r.load.unannounced(queued, requeued))
	slices.SortFunc(leased, time.Time.Compare)
	for n := 1; n < len(leased); n++ {
		r.report.GrantGap = max(r.report.GrantGap, leased[n].Sub(leased[n-1]))
	}
}

// nothingLeased returns the first worker or lease that is left after all jobs were
// cancelled.
func (r *run) nothingLeased(ctx context.Context) string {
	for a, err := range r.fleet.Client().Assignments(ctx, &berthv1.ListAssignmentsRequest{PageSize: 1000}) {
		if err != nil {
			return err.Error()
		}
		return fmt.Sprintf("a worker is still running: %v", a)
	}
	usage, err := r.fleet.Client().Usage(ctx, "")
	if err != nil {
		return err.Error()
	}
	for _, sku := range usage.GetSkus() {
		if n := sku.GetLeased() + sku.GetRunning(); n > 0 {
			return fmt.Sprintf("%d executors of %s are not idle", n, sku.GetSku())
		}
	}
	return ""
}

// audit adds the result of the audit of every revision of etcd to the report.
func (r *run) audit(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := r.follower.CatchUp(ctx); err != nil {
		r.report.addViolation("cannot read the history of etcd: %v", err)
		return
	}
	r.follower.Look(func(a *audit.Auditor) {
		for _, v := range a.Violations() {
			r.report.addViolation("%v", v)
		}
		stats := a.Stats()
		if stats.Snapshots != 1 || stats.OverCommitted != 0 || stats.StartedTwice != 0 {
			r.report.addViolation("the history has gaps, executors are over-committed, or workers were started twice: %+v", stats)
		}
		r.report.Audited = stats
	})
}
