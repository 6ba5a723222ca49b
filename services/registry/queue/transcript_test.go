package queue

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/services/registry/request"
	"berth.dev/services/registry/scheduler"
	"berth.dev/testkit/transcript"
)

// Each file under testdata shows one promise as a transcript. The transcript has comments,
// commands, and after `----` the result of the commands, up to the next empty line.
func TestTranscripts(t *testing.T) { transcript.Run(t, play) }

// play runs the commands of a transcript and returns the transcript with the current
// output.
func play(t *testing.T, text string) string { return newWorld(Config{}).play(t, text) }

func (w *world) play(t *testing.T, text string) string {
	w.successor(10)
	var out strings.Builder
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		out.WriteString(line + "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		out.WriteString("----\n" + w.command(t, line) + "\n")
		for i++; i < len(lines) && lines[i] != ""; i++ {
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

// args has the words of a command: named words of the form NAME=VALUE, and bare words.
type args struct {
	t     *testing.T
	bare  []string
	named map[string]string
}

func parse(t *testing.T, line string) (string, args) {
	words := strings.Fields(line)
	a := args{t: t, named: map[string]string{}}
	for _, word := range words[1:] {
		if name, value, ok := strings.Cut(word, "="); ok {
			a.named[name] = value
		} else {
			a.bare = append(a.bare, word)
		}
	}
	return words[0], a
}

func (a args) number(name string) int64 {
	text, ok := a.named[name]
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		a.t.Fatal(err)
	}
	return n
}

func (a args) grace() *time.Duration {
	if text := a.named["grace"]; text != "" {
		return new(a.duration(text))
	}
	return nil
}

func (a args) duration(text string) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		a.t.Fatal(err)
	}
	return d
}

func (a args) key(text string) model.Key {
	parts := append(strings.Split(text, "/"), "main")
	return model.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}
}

func (a args) workers(text string) []model.WorkerID {
	var workers []model.WorkerID
	for word := range strings.SplitSeq(text, ",") {
		var s model.WorkerID
		if !strings.Contains(word, ".") {
			word += ".0" // the next number
		}
		if _, err := fmt.Sscanf(word, "%d.%d", &s.Index, &s.Number); err != nil {
			a.t.Fatal(err)
		}
		workers = append(workers, s)
	}
	return workers
}

func (a args) upsert() model.Upsert {
	u := model.Upsert{
		Key: a.key(a.bare[0]), Count: int32(a.number("count")),
		RequestID: a.named["request"], IfEpoch: a.number("ifEpoch"),
		Spec: model.Spec{
			TargetSize:   int32(a.number("target")),
			QueueTimeout: a.duration(a.named["timeout"]),
			Task:         model.Task{Command: a.named["command"]},
			Constraints:  constraint.Constraints{SKU: a.named["sku"], Cells: a.named["cells"] != ""},
			Priority:     model.Priority{Tier: int32(a.number("tier"))},
		},
	}
	if cpu := a.number("cpu"); cpu != 0 {
		u.Spec.Constraints.Resources = resource.Vector{"cpu": cpu}
	}
	for _, name := range []string{"zone", "ZONE"} {
		if value := a.named[name]; value != "" {
			u.Spec.Constraints.Attributes = map[string]string{name: value}
		}
	}
	if name := a.named["volume"]; name != "" {
		u.Spec.Volume = &model.VolumeRequest{Resource: name}
	}
	if label := a.named["label"]; label != "" {
		u.Spec.Labels = map[string]string{"label": label}
	}
	if workers := a.named["workers"]; workers != "" {
		u.Workers = a.workers(workers)
	}
	if _, given := a.named["order"]; given {
		order := a.number("order")
		u.Spec.Priority.Order = &order
	}
	switch a.named["batch"] {
	case "STRICT":
		u.Spec.Batch = model.BatchStrict
	case "BEST_EFFORT":
		u.Spec.Batch = model.BatchBestEffort
	}
	if a.named["start"] == "TOGETHER" {
		u.Spec.Start = model.StartTogether
	}
	u.Spec.MaxAttempts = int32(a.number("attempts"))
	switch a.named["class"] {
	case "REPLACE":
		u.Spec.Priority.Class = model.ClassReplace
	case "SCALE":
		u.Spec.Priority.Class = model.ClassScale
	case "NEW_JOB":
		u.Spec.Priority.Class = model.ClassNewJob
	}
	return u
}

// setLife sets the fields of a request that say when its workers begin, end and are
// restarted. Times are offsets from the begin of the transcript.
func (w *world) setLife(s *model.Spec, a args) {
	for name, at := range map[string]*time.Time{"expire": &s.ExpireAt, "notBefore": &s.NotBefore} {
		if text := a.named[name]; text != "" {
			*at = begin.Add(a.duration(text))
		}
	}
	if text := a.named["lifetime"]; text != "" {
		s.Lifetime = model.Lifetime{For: a.duration(text), From: model.FromCreated}
	}
	if text := a.named["live"]; text != "" {
		s.Lifetime = model.Lifetime{For: a.duration(text), From: model.FromLive}
	}
	switch a.named["restart"] {
	case "ON_FAILURE":
		s.Restart = model.RestartOnFailure
	case "ALWAYS":
		s.Restart = model.RestartAlways
	}
	if a.named["requeue"] == "BY_ORDER" {
		s.Requeue = model.RequeueByOrder
	}
	switch a.named["failure"] {
	case "RESTART_GANG":
		s.OnWorkerFailure = model.OnFailedRestart
	case "FAIL_GANG":
		s.OnWorkerFailure = model.OnFailedFail
	}
	if text := a.named["completes"]; text != "" {
		for word := range strings.SplitSeq(text, ",") {
			index, err := strconv.ParseInt(word, 10, 32)
			if err != nil {
				a.t.Fatal(err)
			}
			s.CompletesWith = append(s.CompletesWith, int32(index))
		}
	}
	if code := int32(a.number("fail")); code != 0 {
		s.ExitCodes = &model.ExitCodes{Fail: []int32{code}}
	}
	if a.named["loss"] == "REPLACE" {
		s.OnWorkerLoss = model.OnLossReplace
	}
	if a.named["shrink"] != "" {
		s.Shrink = model.ShrinkHighest
	}
	s.Hold = a.named["hold"] != ""
	if text := a.named["hold"]; s.Hold && text != "default" {
		s.HoldTimeout = new(a.duration(text))
	}
	if _, given := a.named["restarts"]; given {
		limit := int32(a.number("restarts"))
		s.MaxRestarts = &limit
	}
}

func (w *world) command(t *testing.T, line string) string {
	name, a := parse(t, line)
	name, w.hidden = strings.CutSuffix(name, "-unseen")
	switch name {
	case "config":
		config := Config{Scheduling: scheduler.Config{CycleCandidates: int(a.number("candidates")),
			CycleWorkers: int(a.number("workers"))}}
		w.configure(t, a, &config)
		config.BestEffort = a.named["mode"] == "best-effort"
		w.core.config = config.withDefaults()
		return show(w.successor(max(11, a.number("term"))))
	case "elect":
		return show(w.successor(a.number("term")))
	case "upsert":
		u := a.upsert()
		w.setLife(&u.Spec, a)
		return show(w.input(u))
	case "bind":
		b := request.Bind{Key: a.key(a.bare[0]), RequestID: a.named["request"], IfEpoch: a.number("ifEpoch"),
			Pool: a.named["pool"], KeepHeld: a.named["keep"] != ""}
		if command, given := a.named["command"]; given {
			b.Task = &model.Task{Command: command, StopGrace: time.Duration(a.number("grace"))}
		}
		return show(w.input(b))
	case "cancel":
		return show(w.input(request.Cancel{Key: a.key(a.bare[0]), RequestID: a.named["request"],
			IfEpoch: a.number("ifEpoch"), Grace: a.grace()}))
	case "cancel-workers":
		key := a.key(a.bare[0])
		return show(w.input(request.CancelWorkers{Job: key.Job, Stage: key.Stage, Workers: a.workers(a.bare[1]),
			RequestID: a.named["request"], Grace: a.grace()}))
	case "cancel-job":
		return show(w.input(request.CancelJob{Job: a.bare[0], RequestID: a.named["request"], Grace: a.grace()}))
	case "cycle-done":
		return show(w.step(w.outcome(a)))
	case "dispatch-done":
		var done DispatchDone
		for _, uid := range a.bare {
			done.Outcomes = append(done.Outcomes, model.DispatchOutcome{UID: uid, Accepted: a.named["refused"] == "",
				Reason: fault.Reason(a.named["refused"])})
		}
		return show(w.step(done))
	case "lease":
		lease := w.leaseOf(a.bare[0])
		if a.named["on"] != "" {
			chunk := lease.Record.(*model.LeaseChunk)
			for _, on := range strings.Split(a.named["on"], ",") {
				ordinal, _ := strconv.ParseUint(on, 10, 32)
				chunk.Workers = append(chunk.Workers, model.Placement{Ordinal: uint32(ordinal)})
			}
			chunk.GrantedAt = w.now
			chunk.Rating = new(int32(a.number("rating")))
		}
		return show(w.foreign(lease))
	case "offer":
		return show(w.foreign(a.offer(w)))
	case "lease-gone":
		return show(w.foreign(model.Changed{Ref: model.Ref{Kind: model.KindLeaseChunk, ID: a.bare[0]}}))
	case "task":
		h := &model.TaskHeader{UID: a.bare[0]}
		for _, flag := range a.bare[1:] {
			switch flag {
			case "complete":
				h.Complete = true
			case "stopping":
				h.Complete, h.Stopping = true, true
			case "ended":
				h.Complete, h.Ended = true, true
			case "withdrawn":
				h.Complete, h.Stopping, h.Withdrawn, h.Reason = true, true, true, fault.ReasonNotTogether
				h.Message = a.named["why"]
			case "restarted":
				h.Complete, h.Stopping, h.Withdrawn, h.Reason = true, true, true, fault.ReasonGangRestarted
				h.Message = a.named["why"]
			}
		}
		return show(w.foreign(model.Changed{Ref: h.Ref(), Record: h}))
	case "catch-up":
		seen := w.unseen
		w.unseen = nil
		return show(w.show(seen...))
	case "workers-gone":
		return show(w.foreign(model.Changed{Ref: model.Ref{Kind: model.KindTaskChunk, ID: a.bare[0]}}))
	case "task-gone":
		return show(w.foreign(model.Changed{Ref: model.Ref{Kind: model.KindTaskHeader, ID: a.bare[0]}}))
	case "workers-ended":
		chunk := &model.TaskChunk{UID: a.bare[0]}
		for _, workerID := range a.workers(a.bare[1]) {
			chunk.Workers = append(chunk.Workers, model.TaskWorker{ID: workerID, State: model.WorkerFailed})
		}
		return show(w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk}))
	case "workers":
		chunk := a.chunk(w.now)
		for i := range chunk.Workers {
			worker := &chunk.Workers[i]
			worker.Since = model.InstantOf(w.now)
			if before, known := w.worker(a.bare[0], worker.ID); known && before.State == worker.State {
				worker.Since, worker.LastError = before.Since, before.LastError
			}
		}
		return show(w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk}))
	case "executor":
		e := &model.Executor{ID: a.bare[0], Ordinal: uint32(a.number("ordinal")),
			Lost: slices.Contains(a.bare, "lost"), Draining: slices.Contains(a.bare, "draining"),
			NeedsCommand: slices.Contains(a.bare, "programs"), Cell: slices.Contains(a.bare, "cell")}
		return show(w.foreign(model.Changed{Ref: e.Ref(), Record: e}))
	case "volume":
		chunk := &model.VolumeChunk{Job: a.bare[0], Stage: a.bare[1], Volumes: []model.Volume{{ID: "v"}}}
		return show(w.foreign(model.Changed{Ref: chunk.Ref(), Record: chunk}))
	case "wait":
		if w.now = w.now.Add(a.duration(a.bare[0])); w.hidden {
			return show(nil)
		}
		return show(w.step(nil))
	case "deadline":
		next := w.core.NextDeadline()
		if next.IsZero() {
			return "never\n"
		}
		return fmt.Sprintf("in %v\n", max(0, next.Sub(w.now)))
	case "fail":
		w.failing = true
		return "nothing\n"
	case "get":
		view, ok := w.core.Get(a.key(a.bare[0]))
		if !ok {
			return "not there\n"
		}
		return showView(view)
	case "view":
		view, ok := w.core.Get(a.key(a.bare[0]))
		if !ok {
			return "not there\n"
		}
		return showReservation(view)
	case "show":
		return w.showRecord(a.bare[0])
	case "list":
		return w.list(a)
	case "versions":
		return w.versions(a)
	case "pending":
		return w.pendingView()
	case "jobs":
		return w.jobs(a)
	}
	if text, ok := w.operatorCommand(name, a); ok {
		return text
	}
	t.Fatalf("unknown command %q", line)
	return ""
}

// chunk returns the task of a UID, with one worker for each word ID:STATE. The executor's
// ordinal is the worker index, unless on= sets it. REQUEUE stands for a worker that could
// not be started and is to be requeued. RESTART stands for a worker that ended with exit
// code 3 after it ran for the time of ran=, and is to be requeued; AGAIN for one that
// completed; EXHAUSTED for one that is not requeued. GIVEN-UP stands for a worker that could
// not be started and is not requeued. UNCONFIRMED and UNCONFIRMED-REQUEUE stand for a LOST worker
// that may still start. TRIED stands for a worker that was stopped after an attempt to start it had
// failed, and DRAINED for one whose executor is drained. With again=, the workers that have ended
// are to be requeued.
func (a args) chunk(now time.Time) *model.TaskChunk {
	chunk := &model.TaskChunk{UID: a.bare[0]}
	for _, word := range a.bare[1:] {
		name, state, _ := strings.Cut(word, ":")
		worker := model.TaskWorker{ID: a.workers(name)[0], LastError: model.Intern(a.named["error"])}
		worker.Ordinal, worker.BadTask = uint32(worker.ID.Index), a.named["bad"] == "task"
		if a.named["on"] != "" {
			worker.Ordinal = uint32(a.number("on"))
		}
		failed := fault.ReasonAttemptsExhausted
		for worker.State = model.WorkerAssigned; worker.State < model.WorkerEvicted &&
			worker.State.String() != state; worker.State++ {
		}
		switch state {
		case "REQUEUE":
			worker.State, worker.Reason, worker.Requeue = model.WorkerFailed, failed, true
		case "GIVEN-UP":
			worker.State, worker.Reason = model.WorkerFailed, failed
		case "RESTART", "AGAIN", "EXHAUSTED":
			code := int32(3)
			worker.State, worker.Reason, worker.Requeue = model.WorkerFailed, fault.ReasonExited, state != "EXHAUSTED"
			switch state {
			case "AGAIN":
				worker.State, worker.Reason, code = model.WorkerCompleted, "", 0
			case "EXHAUSTED":
				worker.Reason = fault.ReasonRoundsExhausted
			}
			worker.ExitCode, worker.RunningSince = &code, model.InstantOf(now.Add(-a.duration(a.named["ran"])))
		case "UNCONFIRMED", "UNCONFIRMED-REQUEUE":
			worker.State, worker.Reason, worker.Unconfirmed = model.WorkerLost, failed, true
			worker.Requeue = state == "UNCONFIRMED-REQUEUE"
		case "TRIED":
			worker.State = model.WorkerEvicted
		case "WITHDRAWN": // it exited before its stop request arrived
			code := int32(1)
			worker.State, worker.Reason, worker.ExitCode = model.WorkerFailed, fault.ReasonNotTogether, &code
		case "FAILED-1", "FAILED-3", "COMPLETED-0": // by itself
			code := int32(state[len(state)-1] - '0')
			worker.State, worker.Reason, worker.ExitCode = model.WorkerFailed, fault.ReasonExited, &code
			if code == 0 {
				worker.State, worker.Reason = model.WorkerCompleted, ""
			}
			worker.RunningSince = model.InstantOf(now.Add(-a.duration(a.named["ran"])))
		case "STOPPED": // with its gang
			worker.State, worker.Reason = model.WorkerEvicted, fault.ReasonGangRestarted
		case "DRAINED":
			worker.State, worker.Reason = model.WorkerEvicted, fault.ReasonExecutorDraining
			if a.named["ran"] != "" {
				worker.RunningSince = model.InstantOf(now.Add(-a.duration(a.named["ran"])))
			}
		case "OUTLIVED": // it was live for a day
			worker.State, worker.Reason = model.WorkerEvicted, fault.ReasonLifetime
			worker.RunningSince = model.InstantOf(now.Add(-24 * time.Hour))
		case "CELLLOST":
			worker.State, worker.Reason = model.WorkerFailed, fault.ReasonCellWorkerLost
			worker.RunningSince = model.InstantOf(now.Add(-a.duration(a.named["ran"])))
		case "STARTING", "RUNNING":
			worker.Incarnation = 1
			if state == "RUNNING" && a.named["ran"] != "" {
				worker.RunningSince = model.InstantOf(now.Add(-a.duration(a.named["ran"])))
			}
		}
		if worker.State.Terminal() && a.named["again"] != "" {
			worker.Requeue = true
			if a.named["ran"] != "" {
				worker.RunningSince = model.InstantOf(now.Add(-a.duration(a.named["ran"])))
			}
		}
		chunk.Workers = append(chunk.Workers, worker)
	}
	return chunk
}

// worker returns a worker of the task of a UID as it was before.
func (w *world) worker(uid string, id model.WorkerID) (model.TaskWorker, bool) {
	if v := w.core.versions[uid]; v != nil {
		for worker := range v.taskWorkers() {
			if worker.ID == id {
				return worker, true
			}
		}
	}
	return model.TaskWorker{}, false
}

// outcome returns the answer to the cycle in flight. Each word is UID:RESULT, where the
// result is granted, nofit, away, poison, stale, behind or later. For a grant, outcome stores the
// lease, but the view of the core does not show the lease yet.
func (w *world) outcome(a args) scheduler.CycleDone {
	done := scheduler.CycleDone{Cycle: w.cycle.Number}
	if cycle := a.number("cycle"); cycle != 0 {
		done.Cycle = cycle
	}
	for _, word := range a.bare {
		uid, result, _ := strings.Cut(word, ":")
		outcome := model.Outcome{UID: uid}
		switch result {
		case "granted":
			w.write(w.leaseOf(uid))
			outcome.Result, outcome.Lease = model.Granted, w.revision
		case "nofit":
			outcome.Result, outcome.Reason, outcome.Message = model.NoFit, fault.ReasonInsufficientCapacity, "too few executors"
			outcome.Fitting = int(a.number("fitting"))
		case "offering":
			outcome.Result, outcome.Reason, outcome.Message = model.NoFit, fault.ReasonOffering, "1 of 2 cells have answered"
		case "refused":
			outcome.Result, outcome.Reason, outcome.Message = model.NoFit, fault.ReasonCellsRefused, "a is REJECTED"
		case "away":
			outcome.Result, outcome.Reason = model.NoFit, fault.ReasonVolumeAway
			outcome.Message = "its volume is on h0, which is LOST"
		case "poison":
			outcome.Result, outcome.Reason = model.NoFit, fault.ReasonPoison
		case "stale":
			outcome.Result = model.Stale
		case "behind":
			outcome.Result = model.Behind
		case "later":
			outcome.Result = model.Later
		}
		done.Outcomes = append(done.Outcomes, outcome)
	}
	return done
}

func (w *world) leaseOf(uid string) model.Changed {
	chunk := &model.LeaseChunk{UID: uid}
	return model.Changed{Ref: chunk.Ref(), Record: chunk}
}

func showView(v View) string {
	text := fmt.Sprintf("%s(%s) %s", v.Reservation.Key, v.Reservation.UID, v.State)
	if v.Position > 0 {
		text += fmt.Sprintf(" position=%d", v.Position)
	}
	if v.Reason != "" {
		text += " " + string(v.Reason)
	}
	if v.Reservation.Spec.Hold && !v.Reservation.BoundAt.IsZero() {
		text += " bound to run " + v.Reservation.Spec.Task.Command
	}
	if v.Rating != nil {
		text += fmt.Sprintf(" rating=%d", *v.Rating)
	}
	if !v.HeldUntil.IsZero() {
		text += fmt.Sprintf(" until=%v", v.HeldUntil.Sub(begin))
	}
	for _, id := range slices.Sorted(maps.Keys(v.Pools)) {
		cell := v.Pools[id]
		text += fmt.Sprintf(" %s:%s", id, cell.State)
		if cell.Rating > 0 {
			text += fmt.Sprintf(":%d", cell.Rating)
		}
	}
	for _, f := range v.FieldResults {
		text += fmt.Sprintf("\n  %s %s: %s", f.Field, f.Applies, f.Message)
	}
	return text + "\n"
}

// showReservation shows a reservation with its workers and how many are in each state.
func showReservation(v View) string {
	text := showView(v) + "  " + showWorkers(v.Reservation.Workers)
	for _, state := range slices.Sorted(maps.Keys(v.Counts)) {
		text += fmt.Sprintf(" %s=%d", state, v.Counts[state])
	}
	text += showEnds(" ended", v.Ends) + "\n"
	if v.Message != "" {
		text += "  " + v.Message + "\n"
	}
	return text
}

func showEnds(name string, ends []model.End) string {
	var texts []string
	for _, e := range ends {
		text := cmp.Or(e.State.String(), "NEVER") + showWorkers(e.Workers)
		if e.GaveUp {
			text = "GAVE_UP:" + text
		}
		if e.More > 0 {
			text += fmt.Sprintf("+%d", e.More)
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return ""
	}
	return name + "=" + strings.Join(texts, ",")
}

// offer returns the offer of a UID. Each word is CELL:STATE or CELL:STATE:RATING. It is decided if
// no cell is PENDING, at the time of the first such offer. Without cells it is deleted.
func (a args) offer(w *world) model.Changed {
	ref := model.OfferRef(a.bare[0])
	if len(a.bare) == 1 {
		return model.Changed{Ref: ref}
	}
	offer := &model.Offer{UID: a.bare[0], AskedAt: w.now}
	for _, word := range a.bare[1:] {
		parts := strings.Split(word, ":")
		cell := model.CellOffer{Ordinal: w.core.executors[parts[0]]}
		for cell.State = model.CellPending; cell.State < model.CellWithdrawn &&
			cell.State.String() != parts[1]; cell.State++ {
		}
		if len(parts) > 2 {
			rating, _ := strconv.Atoi(parts[2])
			cell.Rating = int32(rating)
		}
		offer.Cells = append(offer.Cells, cell)
	}
	if !offer.Has(model.CellPending) {
		offer.DecidedAt = w.now
		if before := w.core.versions[offer.UID]; before != nil && before.offer.IsDecided() {
			offer.DecidedAt = before.offer.DecidedAt
		}
	}
	return model.Changed{Ref: ref, Record: offer}
}

func (w *world) list(a args) string {
	filter := Filter{Job: a.named["job"], Stage: a.named["stage"], Name: a.named["name"]}
	for state := model.Queued; state <= model.Offering; state++ {
		if state.String() == a.named["state"] {
			filter.State = state
		}
	}
	var after model.Key
	if text := a.named["after"]; text != "" {
		after = a.key(text)
	}
	limit := 100
	if n := a.number("limit"); n != 0 {
		limit = int(n)
	}
	views, more := w.core.List(filter, after, limit)
	var b strings.Builder
	for _, view := range views {
		b.WriteString(showView(view))
	}
	if more {
		b.WriteString("more\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// delayed returns how many are delayed; empty for none.
func delayed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d delayed", n)
}

// jobs lists the jobs that a prefix covers, with the age of their last activity.
func (w *world) jobs(a args) string {
	limit := 100
	if n := a.number("limit"); n != 0 {
		limit = int(n)
	}
	jobs, more := w.core.Jobs(a.named["prefix"], a.named["after"], limit)
	var b strings.Builder
	for _, j := range jobs {
		fmt.Fprintf(&b, "%s: %d reservations, %d pending%s; %d workers pending%s, %d reserved, %d running, %d stopping; %v ago\n",
			j.Name, j.Reservations, j.PendingReservations, delayed(j.DelayedReservations), j.PendingWorkers,
			delayed(j.DelayedWorkers), j.ReservedWorkers, j.RunningWorkers, j.StoppingWorkers, w.now.Sub(j.LastActivity))
	}
	if more {
		b.WriteString("more\n")
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

func (w *world) pendingView() string {
	groups, err := w.allPending()
	if err != nil {
		return showReply(model.Reply{Err: err}) + "\n"
	}
	var b strings.Builder
	for _, g := range groups {
		fmt.Fprintf(&b, "sku=%q %s: %d reservations, %d workers, head %s for %v: %s\n",
			g.Constraints.SKU, g.Constraints.Resources.Canonical(), g.Reservations, g.Workers,
			g.Head, w.now.Sub(g.HeadSince), g.Reason)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// versions lists the versions of a job with their workers, and the worker numbers that its
// stages have used. With after=KEY and uid=UID, the list starts after that version.
func (w *world) versions(a args) string {
	limit := 100
	if n := a.number("limit"); n != 0 {
		limit = int(n)
	}
	var after model.Key
	if text := a.named["after"]; text != "" {
		after = a.key(text)
	}
	filter := Filter{Job: a.bare[0], Stage: a.named["stage"], Name: a.named["name"]}
	views, more := w.core.Versions(filter, after, a.named["uid"], limit)
	var b strings.Builder
	for _, view := range views {
		fmt.Fprintf(&b, "%s %s", showWorkers(view.Reservation.Workers), showView(view))
	}
	if more {
		b.WriteString("more\n")
	}
	for _, stage := range w.core.Stages(a.bare[0], a.named["stage"]) {
		fmt.Fprintf(&b, "%s/%s used=%s\n", stage.Job, stage.Stage, showWorkers(stage.Numbers))
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}
