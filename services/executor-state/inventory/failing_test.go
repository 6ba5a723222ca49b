package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// seenStart is a start that succeeded or failed, as a task records it.
type seenStart struct {
	ordinal uint32
	key     model.Key
	at      time.Time
	failed  bool
	// command is that of a load, and ended is set if the process of a load ended by itself, so that
	// the failure counts only if the same command runs elsewhere.
	command string
	ended   bool
}

// spec returns the request of the start.
func (s seenStart) spec() model.Spec {
	if s.command == "" {
		return model.Spec{}
	}
	return model.Spec{Task: model.Task{Readiness: model.ReadyReported, Command: s.command}}
}

// request returns the digest of the request if the failure needs a proof.
func (s seenStart) request() string {
	if !s.ended {
		return ""
	}
	spec := s.spec()
	return (&task{}).requestOf(&spec)
}

// failingWorld is a rig whose tasks say how starts end, and a list of all of these starts. A
// second core follows as a standby.
type failingWorld struct {
	*rig
	t       *rapid.T
	standby *Core
	seen    []seenStart
	tasks   []string
	// forgot is set if a task was deleted, or a record that proved a failed start was
	// replaced, so that a new replica knows less.
	forgot bool
}

// see delivers the writes of other services, and to the standby those of the leader too.
func (w *failingWorld) see() {
	for _, change := range w.unseen {
		w.standby.Step(w.now, change)
	}
	w.catchUp()
	for _, ref := range slices.SortedFunc(maps.Keys(w.keys), compareRefs) {
		k := w.keys[ref]
		w.standby.Step(w.now, model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	w.standby.Step(w.now, model.Progress{Revision: w.rev})
}

// start writes a task with a worker on an executor that was started, or was not, or of which
// the record says neither.
func (w *failingWorld) start() {
	executor, ok := w.keys[model.Ref{Kind: model.KindExecutor, ID: anyExecutor.Draw(w.t, "executor")}]
	if !ok {
		return
	}
	key := model.Key{Job: evenly("a", "b", "c").Draw(w.t, "job"), Stage: evenly("s", "t").Draw(w.t, "stage"),
		Name: model.MainName}
	worker := model.TaskWorker{
		ID: model.WorkerID{Number: 1}, Ordinal: executor.record.(*model.Executor).Ordinal,
		Since: model.InstantOf(w.now.Add(-time.Duration(rapid.IntRange(0, 100).Draw(w.t, "ago")) * time.Second)),
	}
	seen := seenStart{ordinal: worker.Ordinal, key: key, at: worker.Since.Time()}
	code, killed := evenly[int32](1, 1, 1, 126, 127).Draw(w.t, "code"), int32(143)
	readiness := evenly(model.ReadinessUnset, model.ReadyReported).Draw(w.t, "readiness")
	reported := readiness == model.ReadyReported
	if seen.command = evenly("a", "b").Draw(w.t, "command"); !reported {
		seen.command = ""
	}
	before := evenly(model.WorkerUnset, model.WorkerAssigned, model.WorkerStarting).Draw(w.t, "before")
	how := evenly("fails", "fails", "fails", "fails", "times out", "loads", "runs", "ran", "ends", "exits", "refuses",
		"bad task").Draw(w.t, "how")
	switch how {
	case "fails":
		worker.State, seen.failed = model.WorkerFailed, true
		worker.Reason = evenly(fault.ReasonStartFailed, fault.ReasonStartTimeout, fault.ReasonAttemptsExhausted,
			fault.ReasonRoundsExhausted).Draw(w.t, "reason")
	case "times out":
		worker.State, worker.Reason = model.WorkerFailed, fault.ReasonStartTimeout
		if seen.ended = reported; reported {
			worker.ExitCode = &killed
		}
		seen.failed = true
	case "loads":
		worker.State, worker.ExitCode = model.WorkerFailed, &code
		worker.Reason = evenly(fault.ReasonExited, fault.ReasonKilled, fault.ReasonRoundsExhausted).Draw(w.t, "reason")
		worker.Requeue = worker.Reason != fault.ReasonRoundsExhausted && rapid.Bool().Draw(w.t, "requeue")
		if reported && !worker.Requeue && worker.Reason != fault.ReasonRoundsExhausted {
			before, w.forgot = model.WorkerStarting, true // only the earlier record says that it loaded
		}
		if seen.failed, seen.ended = reported, reported; !reported || code > 125 {
			seen.at = time.Time{}
		}
	case "runs":
		worker.State = model.WorkerRunning
	case "ran":
		worker.State, worker.Reason = model.WorkerFailed, fault.ReasonRoundsExhausted
		worker.RunningSince = worker.Since
	case "ends":
		worker.State = evenly(model.WorkerLost, model.WorkerEvicted, model.WorkerCompleted).Draw(w.t, "state")
		worker.Reason, seen.at = fault.ReasonAttemptsExhausted, time.Time{}
	case "exits":
		worker.State, worker.Reason, seen.at = model.WorkerFailed, fault.ReasonExited, time.Time{}
		worker.ExitCode = &code
		before = evenly(model.WorkerRunning, model.WorkerEvict).Draw(w.t, "before the exit")
	case "refuses":
		worker.State, seen.at = model.WorkerFailed, time.Time{}
		worker.Reason = evenly(fault.ReasonAttemptsExhausted, fault.ReasonRoundsExhausted).Draw(w.t, "reason")
		worker.LastError = model.Intern(evenly("VOLUME_MISSING: no directory", "VOLUME_DESTROYED").Draw(w.t, "error"))
	case "bad task":
		worker.State, worker.BadTask, seen.at = model.WorkerFailed, true, time.Time{}
		worker.Reason = evenly(fault.ReasonStartFailed, fault.ReasonAttemptsExhausted).Draw(w.t, "reason")
	}
	if !seen.at.IsZero() {
		w.seen = append(w.seen, seen)
	}
	uid := fmt.Sprintf("u%d", len(w.tasks))
	w.tasks = append(w.tasks, uid)
	w.write(&model.Reservation{UID: uid, Key: key, State: model.Active,
		Spec: seen.spec()})
	w.write(&model.TaskHeader{UID: uid, Key: key, Complete: true})
	if before != model.WorkerUnset {
		earlier := model.TaskWorker{ID: worker.ID, Ordinal: worker.Ordinal, State: before}
		w.write(&model.TaskChunk{UID: uid, Workers: []model.TaskWorker{earlier}})
	}
	w.write(&model.TaskChunk{UID: uid, Workers: []model.TaskWorker{worker}})
	w.see()
	if len(w.effects) > 0 {
		w.t.Fatalf("a start that failed or succeeded causes the effects %+v", w.effects)
	}
}

func (w *failingWorld) forget() {
	if len(w.tasks) == 0 {
		return
	}
	uid := evenly(w.tasks...).Draw(w.t, "uid")
	w.drop(model.Ref{Kind: model.KindTaskChunk, ID: uid})
	w.drop(model.Ref{Kind: model.KindTaskHeader, ID: uid})
	w.forgot = true
	w.see()
}

func (w *failingWorld) register() {
	id := anyExecutor.Draw(w.t, "executor")
	if _, err := w.do(Register{ID: id, Address: id + ":1", Nonce: fmt.Sprint(w.rev),
		SKU: evenly("small", "Small", "big").Draw(w.t, "sku")}); err != nil {
		w.t.Fatal(err)
	}
}

// proven reports whether a command that failed on an executor ran on another one.
func (w *failingWorld) proven(s seenStart) bool {
	return slices.ContainsFunc(w.seen, func(o seenStart) bool {
		return !o.failed && o.command == s.command && o.ordinal != s.ordinal && o.at.Sub(s.at) >= -10*time.Minute
	})
}

// want returns until when each executor is skipped, and which executors are only findings, computed
// from all starts.
func (w *failingWorld) want() (map[string]time.Time, map[string]bool) {
	succeeded := map[uint32]time.Time{}
	for _, s := range w.seen {
		if !s.failed && s.at.After(succeeded[s.ordinal]) {
			succeeded[s.ordinal] = s.at
		}
	}
	latest := map[uint32]map[model.Key]seenStart{}
	executors := map[model.Key]map[uint32]bool{}
	for _, s := range w.seen {
		if !s.failed || !s.at.After(succeeded[s.ordinal]) || w.now.Sub(s.at) >= 20*time.Minute {
			continue
		}
		if latest[s.ordinal] == nil {
			latest[s.ordinal] = map[model.Key]seenStart{}
		}
		known := latest[s.ordinal][s.key]
		if s.at.After(known.at) || s.at.Equal(known.at) && s.request() < known.request() {
			latest[s.ordinal][s.key] = s
		}
		if executors[s.key] == nil {
			executors[s.key] = map[uint32]bool{}
		}
		executors[s.key][s.ordinal] = true
	}
	type candidate struct {
		*model.Executor
		until time.Time
	}
	fleets, sizes, findings := map[string][]candidate{}, map[string]int{}, map[string]bool{}
	for _, k := range w.keys {
		e, ok := k.record.(*model.Executor)
		if !ok || e.Lost {
			continue
		}
		sku := strings.ToLower(e.SKU)
		sizes[sku]++
		var counted, unclear []time.Time
		for key, s := range latest[e.Ordinal] {
			switch proven := !s.ended || w.proven(s); {
			case proven && len(executors[key]) < 3:
				counted, unclear = append(counted, s.at), append(unclear, s.at)
			case !proven && len(executors[key]) == 1:
				unclear = append(unclear, s.at)
			}
		}
		until := func(times []time.Time, n int) (until time.Time) {
			slices.SortFunc(times, time.Time.Compare)
			for i := n - 1; i < len(times); i++ {
				if end := times[i].Add(10 * time.Minute); times[i].Sub(times[i-n+1]) <= 10*time.Minute && end.After(w.now) {
					until = end
				}
			}
			return until
		}
		if end := until(counted, 3); !end.IsZero() {
			fleets[sku] = append(fleets[sku], candidate{e, end})
		} else if !until(unclear, 5).IsZero() {
			findings[e.ID] = true
		}
	}
	skipped := map[string]time.Time{}
	for sku, list := range fleets {
		slices.SortFunc(list, func(a, b candidate) int {
			return cmp.Or(a.until.Compare(b.until), cmp.Compare(a.Ordinal, b.Ordinal))
		})
		bound := 0
		if sizes[sku] > 1 {
			bound = max(1, sizes[sku]/4)
		}
		for _, c := range list[:min(bound, len(list))] {
			skipped[c.ID] = c.until
		}
	}
	return skipped, findings
}

// onlyFindings returns the executors that are findings although nothing shows that they are at fault.
func onlyFindings(c *Core) map[string]bool {
	ids := map[string]bool{}
	for _, f := range c.failsStarts() {
		if strings.Contains(f.Action, "none of these requests has run elsewhere") {
			ids[f.Object] = true
		}
	}
	return ids
}

func skippedOn(c *Core) map[string]time.Time {
	skipped := map[string]time.Time{}
	for h := range c.byID.All() {
		if until := c.view(h).SkippedUntil; !until.IsZero() {
			skipped[h.ID] = until
		}
	}
	return skipped
}

// Matching skips the executors that a look at all starts names: no more, no fewer, and on a
// standby too. So does a replica that reads the records in any order.
func TestExecutorsThatFailStartsAreSkipped(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HoldBackFrom = 100
	rapid.Check(t, func(t *rapid.T) {
		w := &failingWorld{rig: lead(cfg), t: t, standby: New(cfg)}
		for i := range 8 {
			w.ready(Register{ID: fmt.Sprintf("h%d", i), SKU: "small"})
		}
		actions := map[string]func(){
			"start": w.start, "start more": w.start, "start most": w.start, "start again": w.start, "forget": w.forget,
			"wait":      func() { w.pause(time.Duration(rapid.IntRange(1, 100).Draw(t, "s")) * time.Second) },
			"wait long": func() { w.pause(time.Duration(rapid.IntRange(1, 10).Draw(t, "min")) * time.Minute) },
			"register":  w.register,
		}
		names := slices.Sorted(maps.Keys(actions))
		for range evenly(10, 40, 80).Draw(t, "steps") {
			actions[evenly(names...).Draw(t, "action")]()
			want, findings := w.want()
			if got := skippedOn(w.core); !maps.Equal(got, want) {
				t.Fatalf("at %v skipped %v, want %v", w.now, got, want)
			}
			if got := onlyFindings(w.core); !maps.Equal(got, findings) {
				t.Fatalf("at %v findings of %v, want %v", w.now, got, findings)
			}
		}
		w.check()
	})
}

// check compares the leader with the standby, and with a replica that has started now.
func (w *failingWorld) check() {
	want, findings := skippedOn(w.core), onlyFindings(w.core)
	w.see()
	if got := skippedOn(w.standby); !maps.Equal(got, want) {
		w.t.Fatalf("the standby skips %v, want %v", got, want)
	}
	for h := range w.core.byID.All() {
		if open := isOpen(h); open && !want[h.ID].IsZero() {
			w.t.Fatalf("%s is skipped and may get work", h.ID)
		}
	}
	if w.forgot {
		return
	}
	late := New(w.core.cfg)
	for _, ref := range rapid.Permutation(slices.SortedFunc(maps.Keys(w.keys), compareRefs)).Draw(w.t, "order") {
		k := w.keys[ref]
		late.Step(w.now, model.Changed{Ref: ref, Record: k.record, Create: k.create, Mod: k.mod})
	}
	if got := skippedOn(late); !maps.Equal(got, want) {
		w.t.Fatalf("a new replica skips %v, want %v", got, want)
	}
	if got := onlyFindings(late); !maps.Equal(got, findings) {
		w.t.Fatalf("a new replica has findings of %v, want %v", got, findings)
	}
}

// The failures of an executor are bounded, however many reservations fail there, and end by
// itself.
func TestFailuresOfAnExecutorAreBounded(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	r.ready(small("h2", 1000, 1))
	for i := range 100 {
		uid := fmt.Sprintf("u%d@job-%d", i, i)
		r.write(&model.TaskHeader{UID: uid, Key: keyOf(uid), Complete: true})
		r.apply(&model.TaskChunk{UID: uid, Workers: []model.TaskWorker{{ID: model.WorkerID{Number: 1}, Ordinal: 1,
			State: model.WorkerFailed, Reason: fault.ReasonStartFailed, Since: model.InstantOf(r.now.Add(time.Hour)),
			LastError: model.Intern("disk full")}}})
		r.drop(model.Ref{Kind: model.KindTaskChunk, ID: uid})
		r.applyDeletion(model.Ref{Kind: model.KindTaskHeader, ID: uid})
	}
	h1 := r.core.hosts["h1"]
	if kept, blamed := len(h1.allocation.failing.failures), len(r.core.failedOn); max(kept, blamed) != maxFailures {
		t.Fatalf("%d failures of %d reservations are kept, want %d", kept, blamed, maxFailures)
	}
	if v, _ := r.core.Executor("h1"); !v.SkippedUntil.Equal(r.now.Add(skippedFor)) {
		t.Fatalf("skipped until %v at %v, although the clock of the assigner is ahead", v.SkippedUntil, r.now)
	}
	if list := r.core.Findings(r.now); len(list) != 1 || !strings.HasSuffix(list[0].Message, ": disk full") {
		t.Fatalf("findings %+v", list)
	}
	r.pause(failureKept)
	if r.core.reviews.Len()+len(r.core.failedOn)+len(r.core.failingSKUs) > 0 || h1.allocation.failing != nil {
		t.Fatal("failures are kept although they no longer count")
	}
}
