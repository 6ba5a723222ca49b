package mutants

import "slices"

// noFence lets a deposed leader write.
var noFence = Edit{
	File: "pkg/store/committer.go",
	Old:  `[]Compare{CreatedAt(c.cfg.LeaderKey, c.cfg.Term), chain}`,
	New:  `[]Compare{chain}`,
}

// All are all mutants.
var All = slices.Concat(general, versions)

var general = []Mutant{
	{
		Name: "no-fence", Breaks: "every write is fenced by the create revision of the leader's key",
		Edits: []Edit{noFence}, Hunter: Sim, Expects: []string{"FENCE", "which ended before the request"},
	},
	{
		Name: "evict-unconditional", Breaks: "only the leader that a probe has found dead is evicted, and its later writes are fenced",
		Edits: []Edit{
			noFence,
			{File: "pkg/leader/evict.go", Old: `If:   []store.Compare{store.CreatedAt(e.cfg.Key, term)},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"FENCE", "which ended before the request"},
	},
	{
		Name: "no-chain", Breaks: "a transaction whose outcome is unknown is applied at most once, and never after a later one",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `CreatedAt(c.cfg.LeaderKey, c.cfg.Term), chain}`,
				New: `CreatedAt(c.cfg.LeaderKey, c.cfg.Term)}`},
			{File: "pkg/store/committer.go", Old: "\tchain := Absent(c.cfg.ChainKey)\n\tif c.chain != nil {\n\t\tchain = HasValue(c.cfg.ChainKey, c.chain)\n\t}\n", New: ""},
		},
		Hunter: Sim, Expects: []string{"ALL_OR_NONE", "FENCE", "RESERVATION_STATE", "says that nothing changed"},
	},
	{
		Name: "no-compare-at-dispatch", Breaks: "a task is created only if its reservation and lease have not changed since the decision",
		Edits: []Edit{
			{File: "services/assigner/dispatch/dispatch.go", Old: `{Ref: r.Ref(), Mod: r.mod},`, New: ``},
			{File: "services/assigner/dispatch/dispatch.go", Old: `{Ref: l.chunks[0].Ref(), Create: l.create},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"PLACEMENT", "NO_REVIVAL"},
	},
	{
		Name: "lower-cycle", Breaks: "executor-state rejects a cycle of the registry after a later one",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `case p.Number < newest:`, New: `case false:`},
		},
		Hunter: Sim, Expects: []string{"CYCLE"},
	},
	{
		Name: "cycle-number-used-up", Breaks: "the registry's cycles continue above a number that another sender used",
		Edits: []Edit{
			{File: "services/registry/scheduler/outcome.go", Old: `done.Newest > s.cycles && done.Newest < highestCycle`,
				New: `false`},
		},
		Hunter: Sim, Expects: []string{"is queued for", "come to rest"},
	},
	{
		Name: "stop-is-no-promise", Breaks: "a worker whose stop an agent confirmed is never started there",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch == seen.epoch && seen.ended {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"had confirmed its stop", "but was started on"},
	},
	{
		Name: "ready-before-ready", Breaks: "a worker with readiness REPORTED is RUNNING only after it has reported that it is ready",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `if r != model.ReadyReported && l.ready(id, now) {`,
				New: `if l.ready(id, now) {`},
		},
		Hunter: Sim, Expects: []string{"has not reported that it is ready"},
	},
	{
		Name: "epochs-not-compared", Breaks: "a start request of a lower epoch is rejected, because the name belongs to another worker",
		Edits: []Edit{
			{File: "pkg/agent/ledger.go", Old: `known && id.Epoch < seen.epoch {`, New: `false {`},
		},
		Hunter: Sim, Expects: []string{"for a request of epoch", "had confirmed its stop", "but was started on"},
	},
	{
		Name: "full-taken-as-certain", Breaks: "the error of a full store does not prove that nothing was written",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `res, err = c.checkFull(actx, txn, err)`,
				New: `res, err = TxnResult{}, ErrFull`},
		},
		Hunter: Sim, Expects: []string{"says that nothing changed"},
	},
	{
		Name: "serves-before-caught-up", Breaks: "a leader serves only once its view has reached the revision of its win",
		Edits: []Edit{
			{File: "pkg/loop/driver.go", Old: `return d.revision >= win`, New: `return true`},
		},
		Hunter: Sim, Expects: []string{"without the last writes of the previous leader"},
	},
	{
		Name: "answered-before-durable", Breaks: "an answer or request is sent only after the writes that it depends on are durable",
		Edits: []Edit{
			{File: "pkg/loop/round.go", Old: `for settled < len(r.pending) && decisions[settled].effects <= durable {`,
				New: `for settled < len(r.pending) {`},
		},
		Hunter: Sim, Expects: []string{"but never stored", "was cancelled, but", "runs false, recorded true",
			"went from ASSIGNED to EVICTING", "does not come to rest"},
	},
	{
		Name: "report-acknowledges-stop", Breaks: "only the answer to a stop request acknowledges it",
		Edits: []Edit{{File: "services/assigner/dispatch/report.go", Old: `if status.State < model.WorkerEvict && w.State`,
			New: `if status.State != model.WorkerEvict && w.State`}},
		Hunter: Transcripts, Expects: []string{"05_cancel_stopping"},
	},
	{
		Name: "lost-taken-as-durable", Breaks: "a transaction of unknown outcome is not durable until the chain shows it",
		Edits: []Edit{
			{File: "pkg/store/committer.go", Old: `lost = lost || !errors.Is(err, ErrFull)`,
				New: `return TxnResult{Succeeded: true}, lost, nil`},
		},
		Hunter: Chaos, Expects: []string{"are not linearizable"},
	},
	{
		Name: "answered-unconfirmed", Breaks: "an answer that depends on no write is sent only after the term is confirmed",
		Edits: []Edit{
			{File: "pkg/loop/round.go", Old: `if answers(r.unproved) {`, New: `if false {`},
		},
		Hunter: Sim, Expects: []string{"which ended before the request"},
	},
	{
		Name: "calls-not-remembered", Breaks: "a repeated call gets the first answer and changes nothing",
		Edits: []Edit{
			{File: "services/registry/queue/repeat.go", Old: `if mark.ID == id {`, New: `if false {`},
		},
		Hunter: Sim, Expects: []string{"was cancelled, but", "the last acknowledged call of"},
	},
	{
		Name: "cancel-answered-early", Breaks: "a cancel is answered only after none of its workers can be started any more",
		Edits: []Edit{
			{File: "services/registry/queue/wait.go", Old: `len(wait.workers) > 0) && !wait.isOver() {`,
				New: `len(wait.workers) > 0) && false {`},
		},
		Hunter: Sim, Expects: []string{"is not stopping"},
	},
	{
		Name: "requeued-twice", Breaks: "a worker that could not be started is requeued once",
		Edits: []Edit{
			{
				File: "services/registry/queue/requeue.go", Old: `effect.Puts = append(effect.Puts, next)`,
				New: `twin := *next; twin.UID, twin.Place = c.newUID(), c.newPlace(); effect.Puts = append(effect.Puts, next, &twin)`,
			},
		},
		Hunter: Sim, Expects: []string{"ORIGIN"},
	},
	{
		Name: "requeue-unrecorded", Breaks: "the version that had a worker records that the worker was requeued",
		Edits: []Edit{
			{File: "services/registry/queue/requeue.go", Old: `from.Requeued = from.Requeued.Raise(model.WorkerSetOf(recorded))`,
				New: `_ = recorded`},
			{File: "services/registry/queue/requeue.go", Old: `queued := v.r.Requeued.Has(w.ID) ||`,
				New: `queued := c.requestedAgain(v.r.Key, w.ID) ||`},
		},
		Hunter: Sim, Expects: []string{"ORIGIN"},
	},
	{
		Name: "bind-after-expiry", Breaks: "a hold that has ended is not bound",
		Edits: []Edit{
			{File: "services/registry/queue/hold.go", Old: `return since.Add(v.r.Spec.HoldLimit())`,
				New: `return since.Add(v.r.Spec.HoldLimit() + 5*time.Second)`},
		},
		Hunter: Sim, Expects: []string{"after its hold had ended", "is held since"},
	},
	{
		Name: "hold-dispatched", Breaks: "no worker of a held reservation starts before a bind",
		Edits: []Edit{
			{File: "services/registry/queue/version.go", Old: "&&\n\t\t!v.r.Holds()", New: ``},
		},
		Hunter: Sim, Expects: []string{"got a task without a bind"},
	},
	{
		Name: "bound-held-again", Breaks: "the workers of a bound version are not held again",
		Edits: []Edit{
			{File: "services/registry/queue/requeue.go", Old: `next.State, next.CreatedAt = model.Queued, c.now`,
				New: `next.State, next.CreatedAt, next.BoundAt = model.Queued, c.now, time.Time{}`},
			{File: "services/registry/queue/requeue.go", Old: `	"strings"
`, New: `	"strings"
	"time"
`},
		},
		Hunter: Sim, Expects: []string{"derives from"},
	},
	{
		Name: "hold-kept-on-lost", Breaks: "a hold on an executor that is LOST is withdrawn",
		Edits: []Edit{
			{File: "services/registry/queue/index.go", Old: `case e.Lost:`, New: `case false:`},
		},
		Hunter: Sim, Expects: []string{"which is LOST or draining"},
	},
	{
		Name: "grant-on-rejected", Breaks: "a reservation is placed only into a cell that accepted it",
		Edits: []Edit{
			{File: "services/executor-state/inventory/offer.go", Old: `if cell.State != model.CellAccepted || h == nil ||`,
				New: `if cell.State != model.CellAccepted && cell.State != model.CellRejected || h == nil ||`},
		},
		Hunter: Sim, Expects: []string{"which did not accept its offer"},
	},
	{
		Name: "two-bound", Breaks: "a grant releases every other cell that accepted",
		Edits: []Edit{
			{File: "services/executor-state/inventory/offer.go", Old: `event := OfferPassed`,
				New: `event := OfferGranted`},
		},
		Hunter: Sim, Expects: []string{"is BOUND at "},
	},
	{
		Name: "not-released", Breaks: "a cell that accepted and is not used is free as soon as another one is",
		Edits: []Edit{
			{File: "services/executor-state/inventory/offer.go", Old: "afterEvent(cell.State, event); changes {\n\t\t\tcell.State, cell.Reason, cell.Message = to, \"\", \"\"",
				New: "afterEvent(cell.State, event); changes && event == OfferGranted {\n\t\t\tcell.State = to"},
		},
		Hunter: Sim, Expects: []string{"and another one is not released"},
	},
	{
		Name: "withdrawn-kept", Breaks: "a reservation whose cells have withdrawn is queued again",
		Edits: []Edit{
			{File: "services/registry/queue/hold.go", Old: ` || c.withdrew(v) }`, New: ` }`},
		},
		Hunter: Sim, Expects: []string{"which a bind has chosen"},
	},
	{
		Name: "offer-kept", Breaks: "the offer of a reservation that has ended is deleted",
		Edits: []Edit{
			{File: "services/executor-state/inventory/offer.go",
				Old: `(r == nil || r.record.(*model.Reservation).State.Terminal()) {`, New: `r == nil && r != nil {`},
		},
		Hunter: Sim, Expects: []string{"has an offer while", "which has no offer"},
	},
	{
		Name: "names-share-requeues", Breaks: "reservation names of one stage that share a worker index requeue its workers independently",
		Edits: []Edit{
			{File: "services/registry/queue/requeue.go", Old: `queued := v.r.Requeued.Has(w.ID) || !v.r.RecordsRequeues && next`,
				New: `queued := next`},
		},
		Hunter: Sim, Expects: []string{"is not requeued"},
	},
	{
		Name: "cancels-another-name", Breaks: "a cancel of a worker never cancels a worker of another reservation name with a later number",
		Edits: []Edit{
			{File: "services/registry/queue/earlier.go", Old: `return n.First <= workerID.Number && workerID.Number <= n.Last`,
				New: `return n.First <= workerID.Number`},
		},
		Hunter: Transcripts, Expects: []string{"15_shared_index"},
	},
	{
		Name: "restart-cancelled", Breaks: "a worker that was cancelled is not restarted",
		Edits: []Edit{
			{File: "services/assigner/dispatch/requeue.go",
				Old: `if was.State >= model.WorkerEvict && !was.GaveUp() &&`, New: `if false &&`},
			{File: "services/assigner/dispatch/requeue.go",
				Old: `return !r.ends() && !t.header.Stopping && !t.unwanted.Has(w.ID) &&`, New: `return r.Reservation != nil &&`},
			{File: "services/registry/queue/requeue.go", Old: `queued || v.r.Unwanted.Has(w.ID) ||`, New: `queued ||`},
			{File: "services/registry/queue/requeue.go", Old: `if v.alive() {`, New: `if !v.r.State.Terminal() {`},
			{File: "services/registry/queue/settle.go", Old: `case v.is(model.Active) && c.owesRequeue(v):`,
				New: `case c.owesRequeue(v):`},
		},
		Hunter: Sim, Expects: []string{"which is CANCELLING", "which was not given up"},
	},
	{
		Name: "restart-never", Breaks: "a worker that failed is queued again only if a policy of its reservation names that end",
		Edits: []Edit{
			{File: "services/assigner/dispatch/requeue.go",
				Old: `return restarts && s.RestartsExit(w.ExitCode)`, New: `return true`},
		},
		Hunter: Sim, Expects: []string{"which was not given up"},
	},
	{
		Name: "restart-unbounded", Breaks: "a worker that fails too often in a row is not restarted, except with ALWAYS",
		Edits: []Edit{
			{File: "services/assigner/dispatch/requeue.go", Old: `r.FailuresBefore(w) < r.Spec.RestartLimit():`,
				New: `r.FailuresBefore(w) >= 0:`},
		},
		Hunter: Sim, Expects: []string{"more often than allowed"},
	},
	{
		Name: "expiry-without-stop", Breaks: "the workers of a reservation that expires are stopped",
		Edits: []Edit{
			{File: "services/registry/queue/settle.go", Old: `c.stopStarted(&effect, v, fault.ReasonExpired)`,
				New: `effect.Puts = append(effect.Puts, c.end(v.r, model.Expired, fault.ReasonExpired, ""))`},
		},
		Hunter: Sim, Expects: []string{"before its workers ended"},
	},
	{
		Name: "no-compare-at-grant", Breaks: "a lease is granted only if its reservation has not changed since the decision",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `{Ref: reservation, Mod: e.Mod},`, New: ``},
		},
		Hunter: Sim, Expects: []string{"NO_REVIVAL", "ORDER"},
	},
	{
		Name: "no-compare-at-cancel", Breaks: "a queued reservation ends only while the assigner has no task of it",
		Edits: []Edit{
			{File: "services/registry/queue/record.go", Old: `effect.Expect = append(effect.Expect, noTask(v.uid))`, New: ``},
		},
		Hunter: Sim, Expects: []string{"RESERVATION_STATE", "ONE_ASSIGNMENT", "is not stopping"},
	},
	{
		Name: "head-passed-over", Breaks: "no reservation of a group is granted while one before it does not fit",
		Edits: []Edit{
			{File: "services/executor-state/inventory/cycle.go", Old: `r.stopped[e.Group] = o.Result != model.Granted &&`,
				New: `r.stopped[e.Group] = false &&`},
		},
		Hunter: Sim, Expects: []string{"ORDER"},
	},
	{
		Name: "freed-before-stopped", Breaks: "capacity is released when the worker has ended, not when its stop is requested",
		Edits: []Edit{
			{File: "services/executor-state/inventory/settle.go", Old: `if worker.Occupies() {`,
				New: `if worker.State < model.WorkerEvict {`},
		},
		Hunter: Sim, Expects: []string{"RELEASE"},
	},
	{
		Name: "lost-too-soon", Breaks: "an executor is LOST only after it was absent for the configured time",
		Edits: []Edit{
			{File: "services/executor-state/inventory/lost.go", Old: `return from.Add(c.lostAfter(h))`, New: `return from`},
		},
		Hunter: Sim, Expects: []string{", want at least"},
	},
	{
		Name: "skips-unbounded", Breaks: "executors that fail starts never take their whole SKU out of use",
		Edits: []Edit{
			{File: "services/executor-state/inventory/failing.go", Old: `return max(0, min(max(1, size/skippedShare), size-1))`,
				New: `return size`},
		},
		Hunter: Transcripts, Expects: []string{"fails-starts-bound"},
	},
	{
		Name: "skips-for-a-faulty-reservation", Breaks: "a reservation whose starts fail everywhere blames no executor",
		Edits: []Edit{
			{File: "services/executor-state/inventory/failing.go",
				Old: `case failure.unanswered || proven && executors < failuresOfReservation:`, New: `case true:`},
		},
		Hunter: Transcripts, Expects: []string{"fails-starts-bound"},
	},
	{
		Name: "destroy-while-leased", Breaks: "no volume is destroyed while a worker on it is leased",
		Edits: []Edit{
			{File: "services/executor-state/inventory/volumestate.go",
				Old: `case v.State != model.VolumeDestroying && !leased &&`, New: `case v.State != model.VolumeDestroying &&`},
		},
		Hunter: Sim, Expects: []string{"VOLUME_KEPT", "VOLUME_HOME"},
	},
	{
		Name: "create-over-missing", Breaks: "no worker starts on an empty directory in place of a volume that is missing",
		Edits: []Edit{
			{File: "pkg/agent/volumeledger.go", Old: `case !v.exists && !create:`, New: `case false:`},
		},
		Hunter: Sim, Expects: []string{"starts on the empty volume"},
	},
	{
		Name: "rehome-living", Breaks: "a volume moves to another executor only if its home is LOST",
		Edits: []Edit{
			{File: "services/executor-state/inventory/volumestate.go",
				Old: `if c.homeLost(v) && !leased {`, New: `if !leased {`},
		},
		Hunter: Sim, Expects: []string{"VOLUME_HOME", "is not LOST"},
	},
	{
		Name: "wait-like-replace", Breaks: "an index with onLoss WAIT never starts elsewhere by itself",
		Edits: []Edit{
			{File: "services/executor-state/inventory/volumegrant.go",
				Old: `replace := p.Volume.OnLoss == model.OnVolumeLossReplace`, New: `replace := true`},
		},
		Hunter: Sim, Expects: []string{"no reservation replaces it"},
	},
	{
		Name: "unused-volume-kept", Breaks: "a volume that no worker used does not hold its index on an executor that lacks it",
		Edits: []Edit{
			{File: "services/assigner/dispatch/stop.go", Old: `	case never &&`, New: `	case false &&`},
		},
		Hunter: Sim, Expects: []string{"no worker can start on volume"},
	},
	{
		Name: "volume-uncounted", Breaks: "volumes use the capacity of their executors",
		Edits: []Edit{
			{File: "services/executor-state/inventory/volume.go", Old: `allocation.Hold(n, v.Holds(), v.Role)`,
				New: `allocation.Hold(n, nil, v.Role)`},
		},
		Hunter: Sim, Expects: []string{"CAPACITY", "slots"},
	},
	{
		Name: "orphan-destroyed", Breaks: "a volume that no record names is destroyed only on request",
		Edits: []Edit{
			{File: "services/executor-state/inventory/volumelist.go", Old: `	c.keepRemovals(h)
`,
				New: `	c.keepRemovals(h)
	_, _ = c.removeUnknown(h.ID, r.IDs)
`},
		},
		Hunter: Sim, Expects: []string{"although nobody requested it"},
	},
	{
		Name: "absent-by-an-old-report", Breaks: "a report proves absence only of workers that were acknowledged before it",
		Edits: []Edit{
			{File: "pkg/model/reconcile.go", Old: `w.Incarnation == said.Incarnation && w.Sequence < said.Sequence`,
				New: `w.Incarnation == said.Incarnation`},
		},
		Hunter: Sim, Expects: []string{"is LOST because of a report without it"},
	},
	{
		Name: "proof-unused", Breaks: "a leader whose process is dead is replaced by fast failover, before its TTL",
		Edits: []Edit{
			{File: "pkg/leader/election.go", Old: `if e.cfg.WaitDead != nil && h.Address != "" {`, New: `if false {`},
		},
		Hunter: Chaos, Expects: []string{"that was killed alone"},
	},
	{
		Name: "returns-before-lost", Breaks: "an executor that returns stays LOST until the assigner has given up its workers",
		Edits: []Edit{{File: "services/executor-state/inventory/register.go",
			Old: `if back.Lost && h.allocation.Workers == 0 {`, New: `if back.Lost {`}},
		Hunter: Transcripts, Expects: []string{"executor-state-2-returns-before-its-workers-end"},
	},
}
