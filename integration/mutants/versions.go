package mutants

// versions are the mutants of promises that hold for a reservation over all its versions, and of
// executors that do not deliver a start.
var versions = []Mutant{
	{
		Name: "spread-of-a-version", Breaks: "spread, sameShape and pack count the workers of all versions of a reservation",
		Edits: []Edit{{File: "services/executor-state/inventory/cycle.go",
			Old: `r.pinned(e.Key, e.UID, e.Constraints, e.Workers))`, New: `nil)`}},
		Hunter: Sim, Expects: []string{"SPREAD", "and its spread allows", "and must be on one"},
	},
	{
		Name: "spread-of-stale-workers", Breaks: "the workers of a reservation are counted from its present leases",
		Edits: []Edit{{File: "services/executor-state/inventory/gang.go",
			Old: "\t\tg.count(prev, -1)\n\t\tg.count(next, 1)\n", New: ""}},
		Hunter: Sim, Expects: []string{"SPREAD", "and its spread allows", "and must be on one"},
	},
	{
		Name: "lost-workers-counted", Breaks: "a worker on a LOST executor takes no place in the spread of its reservation",
		Edits: []Edit{{File: "services/executor-state/inventory/gang.go",
			Old: ` || h.state == model.ExecutorLost`, New: ``}},
		Hunter: Transcripts, Expects: []string{"executor-state-4-versions-of-a-reservation"},
	},
	{
		Name: "moves-limited", Breaks: "a worker whose executor was drained or LOST is replaced, whatever maxRestarts allows",
		Edits: []Edit{{File: "services/assigner/dispatch/requeue.go",
			Old: `case w.Moved(), r.Spec.Restart ==`, New: `case r.Spec.Restart ==`}},
		Hunter: Sim, Expects: []string{"was given up although its executors were drained or LOST", "ORIGIN"},
	},
	{
		Name: "moves-count", Breaks: "a move is no failure: it raises no number and delays nothing",
		Edits:  []Edit{{File: "services/registry/queue/restart.go", Old: "\tif !w.Moved() {\n", New: "\tif true {\n"}},
		Hunter: Sim, Expects: []string{"although its executors were drained or LOST", "failures in a row"},
	},
	{
		Name: "moves-count-in-rounds", Breaks: "a round of a gang in which workers moved and none failed does not count",
		Edits:  []Edit{{File: "services/registry/queue/round.go", Old: `if !v.roundMoved() {`, New: `if true {`}},
		Hunter: Sim, Expects: []string{"failed rounds", "although its executors were drained or LOST"},
	},
	{
		Name: "avoids-moved", Breaks: "a worker that moved does not avoid the executor that it left",
		Edits: []Edit{{File: "services/registry/queue/requeue.go",
			Old: `w.RunningSince.IsZero() && !w.Moved()`, New: `w.RunningSince.IsZero()`}},
		Hunter: Transcripts, Expects: []string{"14_moved"},
	},
	{
		Name: "begins-early", Breaks: "a reservation enters its queue at its notBefore",
		Edits:  []Edit{{File: "pkg/model/reservation.go", Old: `case r.NotBefore.After(now):`, New: `case false:`}},
		Hunter: Sim, Expects: []string{"at which it enters its queue"},
	},
	{
		Name: "demand-before-its-time", Breaks: "a reservation that is in no queue yet is no demand",
		Edits: []Edit{{File: "services/executor-state/inventory/idle.go", Old: `r.DemandAt(now,`,
			New: `r.DemandAt(now.Add(time.Hour),`}},
		Hunter: Sim, Expects: []string{"are in the queues of the registry"},
	},
	{
		Name: "group-overtaken", Breaks: "executors that become free together go to all groups in one order",
		Edits: []Edit{{File: "services/registry/scheduler/cycle.go",
			Old: `sent[at.last].NextAt = int32(len(sent))`, New: `_ = sent`}},
		Hunter: Sim, Expects: []string{"which is older and fits, although all candidates of its group were granted"},
	},
	{
		Name: "end-of-cycle-ignored", Breaks: "a cycle ends where a reservation that was not sent comes first",
		Edits: []Edit{{File: "services/executor-state/inventory/cycle.go",
			Old: `case exhausted || r.end > 0 && at >= r.end:`, New: `case exhausted:`}},
		Hunter: Transcripts, Expects: []string{"executor-state-3-overtaking"},
	},
	{
		Name: "by-order-first", Breaks: "a worker with requeue BY_ORDER has the place of its reservation",
		Edits: []Edit{{File: "services/registry/scheduler/order.go", Old: `a.RequeuedFirst(), b.RequeuedFirst()`,
			New: `a.Origin == model.OriginRequeue, b.Origin == model.OriginRequeue`}},
		Hunter: Sim, Expects: []string{"ORDER"},
	},
	{
		Name: "requeue-keeps-request", Breaks: "a worker that is queued again has the latest request for its reservation",
		Edits:  []Edit{{File: "services/registry/queue/requeue.go", Old: "\t\ttakeRequest(next)\n", New: ""}},
		Hunter: Sim, Expects: []string{"does not have its latest request"},
	},
	{
		Name: "upsert-not-stored", Breaks: "every upsert that is not rejected is stored",
		Edits: []Edit{{File: "services/registry/queue/latest.go",
			Old: `request.Differences(spec, &v.r.Spec)&^request.InPlace != 0 ||`, New: `false ||`}},
		Hunter: Sim, Expects: []string{"shows another request"},
	},
	{
		Name: "requeue-expires", Breaks: "queueTimeout limits only the wait for the first executors of a request",
		Edits:  []Edit{{File: "services/registry/queue/index.go", Old: ` && v.r.AwaitsFirstGrant() {`, New: ` {`}},
		Hunter: Sim, Expects: []string{"for longer than the queueTimeout of their request", "although its workers had executors before"},
	},
	{
		Name: "gang-forgotten", Breaks: "a gang that Berth does not make whole again is a finding",
		Edits: []Edit{{File: "services/registry/queue/reservation.go",
			Old: `next.Missing = next.Missing.Raise(missing.Minus(missing.Below(r.newest)))`, New: `_ = missing`}},
		Hunter: Transcripts, Expects: []string{"09_incomplete_gang"},
	},
	{
		Name: "view-of-a-version", Breaks: "of each worker index, a reservation shows the newest worker over all its versions",
		Edits: []Edit{{File: "services/registry/queue/reservation.go",
			Old: `over := v.r.Workers.Below(r.newest)`, New: `var over model.WorkerSet`}},
		Hunter: Sim, Expects: []string{"at rest:"},
	},
	{
		Name: "ends-forgotten", Breaks: "a reservation does not forget how workers ended whose versions are deleted",
		Edits: []Edit{{File: "services/registry/queue/reservation.go",
			Old: `effect.Puts = append(effect.Puts, next)`, New: ``}},
		Hunter: Transcripts, Expects: []string{"19_view_best_effort"},
	},
	{
		Name: "lowest-index-is-the-cause", Breaks: "messages name the first failure in time",
		Edits: []Edit{{File: "services/registry/queue/read.go",
			Old: `model.InTime(*w, first) < 0`, New: `w.ID.Compare(first.ID) < 0`}},
		Hunter: Transcripts, Expects: []string{"14_first_failure"},
	},
	{
		Name: "bad-task-blames-executor", Breaks: "a fault of the task never counts against its executor",
		Edits: []Edit{{File: "services/executor-state/inventory/failing.go",
			Old: `!is.RunningSince.IsZero() || is.BadTask {`, New: `!is.RunningSince.IsZero() {`}},
		Hunter: Transcripts, Expects: []string{"executor-state-7-bad-tasks"},
	},
	{
		Name: "silent-unbounded", Breaks: "executors that do not answer never take their whole SKU out of use",
		Edits: []Edit{{File: "services/executor-state/inventory/failing.go",
			Old: `return max(silentAlways, size/skippedShare)`, New: `return size`}},
		Hunter: Transcripts, Expects: []string{"executor-state-7-silent-bound"},
	},
	{
		Name: "unconfirmed-freed", Breaks: "a worker that its executor may still start keeps its share",
		Edits: []Edit{{File: "services/executor-state/inventory/settle.go",
			Old: `if worker.Occupies() {`, New: `if !worker.State.Terminal() {`}},
		Hunter: Sim, Expects: []string{"RELEASE"},
	},
	{
		Name: "skipped-home", Breaks: "an executor that fails starts still starts the workers of its volumes",
		Edits: []Edit{{File: "services/executor-state/inventory/volumestate.go",
			Old: `case match.Eligible, match.Overcommitted, match.FailsStarts:`, New: `case match.Eligible, match.Overcommitted:`}},
		Hunter: Transcripts, Expects: []string{"executor-state-11-volumes-fails-starts"},
	},
	{
		Name: "cells-split", Breaks: "a reservation is never split between cells",
		Edits: []Edit{{File: "services/executor-state/inventory/offer.go",
			Old: `len(cells) == 0 || slices.Contains(cells, h) }`, New: `len(cells) == 0 || h != nil }`}},
		Hunter: Sim, Expects: []string{"while workers of the reservation are in"},
	},
	{
		Name: "later-unrecorded", Breaks: "a worker that ended for good after it was queued again stays a member of its gang",
		Edits: []Edit{{File: "services/assigner/dispatch/members.go",
			Old: `changed = next.Later.Number < later.Number; changed`, New: `changed = false; changed`}},
		Hunter: Transcripts, Expects: []string{"09_members_given_up"},
	},
	{
		Name: "bind-without-task", Breaks: "a bind that leaves nothing to run is rejected",
		Edits: []Edit{{File: "services/registry/queue/hold.go",
			Old: `if b.Task == nil && !b.KeepHeld &&`, New: `if false && b.Task == nil && !b.KeepHeld &&`}},
		Hunter: Transcripts, Expects: []string{"17_hold"},
	},
	{
		Name: "expires-before-begin", Breaks: "a request that ends before it may begin is rejected",
		Edits:  []Edit{{File: "services/registry/queue/upsert.go", Old: `!s.ExpireAt.After(s.NotBefore)`, New: `false`}},
		Hunter: Transcripts, Expects: []string{"13_never_starts"},
	},
}
