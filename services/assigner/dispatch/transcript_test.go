package dispatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/testkit/transcript"
)

// Each file is one scenario. It has blocks of commands, a line of dashes, and the actions
// of the core. Each command commits its effects at once. After `hold`, effects wait for
// `commit` or `abandon`.
func TestTranscripts(t *testing.T) { transcript.Run(t, transcribe) }

// transcribe runs the commands and returns the expected content of the file. Empty lines
// separate blocks.
func transcribe(t *testing.T, text string) string {
	s := &script{world: newWorld(Config{PerExecutor: 2})}
	var blocks []string
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		asked, _, runs := strings.Cut(block, "\n----")
		for _, line := range strings.Split(asked, "\n") {
			if line != "" && !strings.HasPrefix(line, "#") {
				s.run(t, line)
				runs = true
			}
		}
		if runs {
			asked += "\n----\n" + strings.Join(s.lines, "\n")
			s.lines = nil
		}
		blocks = append(blocks, strings.TrimRight(asked, "\n"))
	}
	for _, failed := range s.failed {
		t.Error(failed)
	}
	return strings.Join(blocks, "\n\n") + "\n"
}

type script struct {
	*world
	lines []string
	hold  bool
	// terms makes the transcript show the term in each answer to a report, and sizes the number
	// of workers of the gang in each start request.
	terms, sizes bool
}

func (s *script) say(format string, args ...any) {
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *script) give(event model.Event) { s.show(s.step(event)) }

func (s *script) run(t *testing.T, line string) {
	words := strings.Fields(line)
	arg := func(i int) string {
		if i < len(words) && !strings.Contains(words[i], "=") {
			return words[i]
		}
		return ""
	}
	option := func(name string, otherwise int64) int64 {
		for _, word := range words {
			if value, ok := strings.CutPrefix(word, name+"="); ok {
				n, err := strconv.ParseInt(value, 10, 64)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				return n
			}
		}
		return otherwise
	}
	switch words[0] {
	case "executor": // executor 1 [incarnation=] [lost]
		n, _ := strconv.Atoi(arg(1))
		s.executor(uint32(n), option("incarnation", 1), words[len(words)-1] == "lost")
		s.give(model.Progress{Revision: s.revision})
	case "present", "absent": // present e1
		s.present(arg(1), words[0] == "present")
		s.give(model.Progress{Revision: s.revision})
	case "ready": // ready: the registry becomes ready
		ready := &model.Ready{Since: s.now, By: "signal"}
		s.write(ready.Ref(), ready)
		s.give(model.Progress{Revision: s.revision})
	case "restored": // restored: must be the first line; the cluster waits for its job services
		s.write((*model.Ready)(nil).Ref(), nil)
	case "gone": // gone u1: delete the reservation of u1
		s.write(reservationRef(arg(1)), nil)
		s.give(model.Progress{Revision: s.revision})
	case "drain", "undrain": // drain e1 [1s]
		var grace *time.Duration
		if len(words) > 2 {
			d, err := time.ParseDuration(words[2])
			if err != nil {
				t.Fatal(err)
			}
			grace = &d
		}
		s.drain(arg(1), words[0] == "drain", grace)
		s.give(model.Progress{Revision: s.revision})
	case "silent", "answers": // silent e1: executor-state marks the executor as silent
		s.silence(arg(1), words[0] == "silent")
		s.give(model.Progress{Revision: s.revision})
	case "reservation": // reservation u1 STATE [attempts=] [failures=] [restarts=] [lifetime=seconds] [timeout=seconds]
		// [volume] [EXPIRED] [ON_FAILURE] [ALWAYS] [REPLACE] [REPORTED] [requeue] [notify] [together] [of u2]
		// [has 0.1 …] [unwanted 0.1 …] [requeued 0.1 …] [began u2] [counts] [GAVE_UP] [failed 0.1 …]
		// [missing 0.1 …] [past 0.1 …] [completed 0.1 …] [cancelled 0.1 …] [retry=code] [fail=code] [RESTART]
		for state := model.StateUnset; state <= model.Replaced; state++ {
			if state.String() != arg(2) {
				continue
			}
			s.reservation(arg(1), state, int32(option("attempts", 3)), func(r *model.Reservation) {
				if r.Failures = int32(option("failures", int64(r.Failures))); r.Failures > 0 {
					r.Origin = model.OriginRequeue
				}
				if limit := int32(option("restarts", -1)); limit >= 0 {
					r.Spec.MaxRestarts = &limit
				}
				if seconds := option("lifetime", 0); seconds > 0 {
					r.Spec.Lifetime = model.Lifetime{For: time.Duration(seconds) * time.Second, From: model.FromLive}
				}
				for name, set := range map[string]func(codes *model.ExitCodes, code int32){
					"retry": func(codes *model.ExitCodes, code int32) { codes.Retry = []int32{code} },
					"fail":  func(codes *model.ExitCodes, code int32) { codes.Fail = []int32{code} },
				} {
					if code := int32(option(name, -1)); code >= 0 {
						if r.Spec.ExitCodes == nil {
							r.Spec.ExitCodes = &model.ExitCodes{}
						}
						set(r.Spec.ExitCodes, code)
					}
				}
				r.Spec.Task.StartTimeout = time.Duration(option("timeout", 0)) * time.Second
				for word, set := range map[string]func(){
					"EXPIRED":    func() { r.Reason = fault.ReasonExpired },
					"ON_FAILURE": func() { r.Spec.Restart = model.RestartOnFailure },
					"ALWAYS":     func() { r.Spec.Restart = model.RestartAlways },
					"REPLACE":    func() { r.Spec.OnWorkerLoss = model.OnLossReplace },
					"REPORTED":   func() { r.Spec.Task.Readiness = model.ReadyReported },
					"volume":     func() { r.Spec.Volume = &model.VolumeRequest{Resource: "disk"} },
					"requeue":    func() { r.Origin = model.OriginRequeue },
					"notify":     func() { r.Spec.OnFailure = model.OnFailureNotify },
					"together":   func() { r.Spec.Start = model.StartTogether },
					"RESTART":    func() { r.Spec.OnWorkerFailure = model.OnFailedRestart },
				} {
					if slices.Contains(words, word) {
						set()
					}
				}
				if i := slices.Index(words, "of"); i > 0 {
					r.Parent = words[i+1]
				}
				if i := slices.Index(words, "began"); i > 0 {
					r.First = words[i+1]
				}
				var own, past, completed, cancelled model.End
				for word, set := range map[string]*model.WorkerSet{"has": &r.Workers, "unwanted": &r.Unwanted,
					"requeued": &r.Requeued, "missing": &r.Missing, "failed": &own.Workers, "past": &past.Workers,
					"completed": &completed.Workers, "cancelled": &cancelled.Workers} {
					if i := slices.Index(words, word); i > 0 {
						var workers []model.WorkerID
						for _, name := range words[i+1:] {
							if !strings.Contains(name, ".") {
								break
							}
							_, workerID := worker(t, "u/"+name)
							workers = append(workers, workerID)
						}
						*set = model.WorkerSetOf(workers)
					}
				}
				for _, word := range words { // hastened=1s is for all workers, hastened=1s:0.1 for one
					if text, ok := strings.CutPrefix(word, "hastened="); ok {
						text, name, one := strings.Cut(text, ":")
						grace, err := time.ParseDuration(text)
						if err != nil {
							t.Fatal(err)
						}
						if r.StopGraces = r.WithStopGrace(grace); one {
							_, workerID := worker(t, "u/"+name)
							r.StopGraces = []model.StopGrace{{Grace: grace, Workers: model.WorkerSetOf([]model.WorkerID{workerID})}}
						}
					}
				}
				own.State, past.State = model.WorkerFailed, model.WorkerFailed
				own.GaveUp, past.GaveUp = slices.Contains(words, "GAVE_UP"), slices.Contains(words, "GAVE_UP")
				completed.State, cancelled.Cancelled = model.WorkerCompleted, true
				if ends := []model.End{past, completed, cancelled}; len(own.Workers)+len(past.Workers)+
					len(completed.Workers)+len(cancelled.Workers) > 0 {
					r.Ends = &model.Ends{Own: []model.End{own}, Past: ends}
				}
				if state.Terminal() && slices.Contains(words, "counts") {
					r.WorkerCounts = map[string]int32{model.WorkerFailed.String(): int32(own.Workers.Len())}
				}
			})
		}
		s.give(model.Progress{Revision: s.revision})
	case "lease": // lease u1 1 2 3: place the workers of u1 on executors 1, 2 and 3
		var ordinals []uint32
		for _, word := range words[2:] {
			n, _ := strconv.Atoi(word)
			ordinals = append(ordinals, uint32(n))
		}
		s.lease(arg(1), ordinals...)
		s.give(model.Progress{Revision: s.revision})
	case "free": // free u1: delete the lease of u1
		s.write(leaseRef(arg(1)), nil)
		s.give(model.Progress{Revision: s.revision})
	case "elect":
		s.registry()
		s.show(s.elect())
	case "succeed": // succeed: another replica becomes the leader
		s.show(s.succeed())
	case "create": // create u1 [mod=] [lease=] [term=]: the defaults are the current revisions and term
		uid := arg(1)
		s.give(model.Input{Token: uint64(option("token", 1)), Request: model.Dispatch{
			Term: option("term", s.registry()),
			Tasks: []model.DispatchTask{{Key: key(uid), UID: uid,
				Mod:   option("mod", s.records[reservationRef(uid)].mod),
				Lease: option("lease", s.records[leaseRef(uid)].create)}},
		}})
	case "submitted": // submitted e1 u1/0.1 1 ACCEPTED|UNKNOWN|UNDELIVERED|INCONCLUSIVE|REASON [BAD_TASK]
		done := SubmitDone{Executor: arg(1), Outcome: Unknown{"timeout"}}
		done.UID, done.WorkerID = worker(t, arg(2))
		attempt, _ := strconv.Atoi(arg(3))
		done.Attempt = int32(attempt)
		switch arg(4) {
		case "ACCEPTED":
			done.Outcome = Accepted{Status: Status{State: model.WorkerStarting}, Incarnation: option("incarnation", 1),
				Sequence: option("sequence", 1)}
		case "UNKNOWN":
		case "UNDELIVERED":
			done.Outcome = Undelivered{"no connection"}
		case "INCONCLUSIVE":
			done.Outcome = Inconclusive{"shutting down"}
		default:
			done.Outcome = Refused{Reason: fault.Reason(arg(4)), BadTask: arg(5) == "BAD_TASK"}
		}
		s.give(done)
	case "stopped": // stopped e1 u1/0.1 STOPPING|UNKNOWN|STATE [never] [epoch=]: the executor never started it
		done := StopDone{Executor: arg(1), Epoch: option("epoch", 7), Result: Unknown{"timeout"}}
		var at model.WorkerID
		done.UID, at = worker(t, arg(2))
		done.Worker = workerOf(done.UID, at)
		switch arg(3) {
		case "STOPPING":
			done.Result = Stopping{}
		case "UNKNOWN":
		default:
			end := status(t, arg(3))
			end.NeverStarted = slices.Contains(words, "never")
			done.Result = Ended(end)
		}
		s.give(done)
	case "volume": // volume u1 v1 STATE [index=] [on=] [used]: a volume of the stage of u1; gone removes it
		v := model.Volume{ID: arg(2), Index: int32(option("index", 0)), Ordinal: uint32(option("on", 1)),
			Used: slices.Contains(words, "used")}
		for state := model.VolumePlanned; state <= model.VolumeDestroying; state++ {
			if state.String() == arg(3) {
				v.State = state
			}
		}
		s.volume(arg(1), v)
		s.give(model.Progress{Revision: s.revision})
	case "unreadable": // unreadable u1: the volumes of u1 cannot be read; before elect
		s.give(model.Quarantined{Ref: volumeRef(arg(1), 0)})
	case "remove": // remove e1 v1 v2 …: an operator requests e1 to destroy volumes that no record assigns to it
		e := *s.records[executorRef(arg(1))].record.(*model.Executor)
		e.Removals = words[2:]
		s.write(e.Ref(), &e)
		s.give(model.Progress{Revision: s.revision})
	case "dropped": // dropped e1 DROPPING|UNKNOWN|REASON
		done := DropDone{Executor: arg(1), Outcome: Refused{Reason: fault.Reason(arg(2))}}
		switch arg(2) {
		case "DROPPING":
			done.Outcome = Dropping{}
		case "UNKNOWN":
			done.Outcome = Unknown{"timeout"}
		}
		s.give(done)
	case "report", "news": // report e1 [incarnation=] [sequence=] [epoch=] u1/0.1:RUNNING u1/1.1:RUNNING@3 …
		// u1/2.1:FAILED(1) has an exit code, and u1/3.1:FAILED(START_TIMEOUT) a reason. u1/4.1:STARTING~queued is queued at
		// its executor, and u1/4.1:STARTING~-5s began five seconds ago. u1/4.1:FAILED(1)~-5s ended five seconds ago.
		// u1/5.1:RUNNING^leaf runs on that host of a cell. news sends an incomplete report.
		r := Report{Executor: arg(1), Incarnation: option("incarnation", 1), Sequence: option("sequence", 100),
			Complete: words[0] == "report"}
		for _, word := range words[2:] {
			name, state, ok := strings.Cut(word, ":")
			if !ok {
				continue
			}
			uid, workerID := worker(t, name)
			epoch := option("epoch", 7)
			state, at, ok := strings.Cut(state, "@")
			if ok {
				epoch, _ = strconv.ParseInt(at, 10, 64)
			}
			state, host, _ := strings.Cut(state, "^")
			state, start, _ := strings.Cut(state, "~")
			w := WorkerStatus{Worker: workerOf(uid, workerID), UID: uid, Epoch: epoch, Status: status(t, state)}
			w.Host = host
			if w.Queued = start == "queued"; start != "" && !w.Queued {
				d, err := time.ParseDuration(start)
				if err != nil {
					t.Fatal(err)
				}
				if w.State.Terminal() {
					w.EndedFor = -d
				} else {
					w.Begun = s.now.Add(d)
				}
			}
			r.Workers = append(r.Workers, w)
		}
		s.give(model.Input{Token: 2, Request: r})
	case "clear": // clear e1 request [epoch=] u1/0.1 …
		c := Clear{Executor: arg(1), RequestID: arg(2)}
		for _, name := range words[3:] {
			if !strings.Contains(name, "=") {
				uid, workerID := worker(t, name)
				c.Workers = append(c.Workers, Assigned{workerOf(uid, workerID), option("epoch", 7)})
			}
		}
		s.give(model.Input{Token: 3, Request: c})
	case "since": // since u1: how long ago each worker entered its state
		t := s.core.tasks[arg(1)]
		for _, chunk := range t.chunks {
			for _, w := range chunk.Workers {
				s.say("%s %s for %v", w.ID, w.State, s.now.Sub(w.Since.Time()))
			}
		}
	case "members", "follow": // members u1; follow u1 also waits for a change
		m := s.core.Members(key(arg(1)))
		text := ""
		for _, one := range m.List {
			text += fmt.Sprintf(" %s@%s(%s)", one.ID, one.Executor, one.Host)
		}
		for i, indexes := range []model.Indexes{m.Waiting, m.Ended, m.GaveUp} {
			for _, r := range indexes {
				text += fmt.Sprintf(" %s=%d-%d", []string{"waiting", "ended", "gaveUp"}[i], r.First, r.Last)
			}
		}
		s.say("members %d of %d:%s", len(m.List), m.Workers, text)
		if words[0] == "follow" {
			s.core.Watch(key(arg(1)), func(model.Key) bool { return true })
		}
	case "cell": // cell e1: the executor is a cell
		e := *s.records[executorRef(arg(1))].record.(*model.Executor)
		e.Cell = true
		s.write(e.Ref(), &e)
		s.give(model.Progress{Revision: s.revision})
	case "move": // move e1 HOST: the agent registers again with another address
		e := *s.records[executorRef(arg(1))].record.(*model.Executor)
		e.Address, e.Incarnation = arg(2)+":7200", e.Incarnation+1
		s.write(e.Ref(), &e)
		s.give(model.Progress{Revision: s.revision})
	case "forget": // forget e1: delete the record of the executor
		s.write(executorRef(arg(1)), nil)
		s.give(model.Progress{Revision: s.revision})
	case "pass": // pass 3s
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			t.Fatal(err)
		}
		s.pass(d)
	case "terms": // terms: show the term and the orphans in each answer to a report
		s.terms = true
	case "sizes": // sizes: show the number of workers of the gang in each start request
		s.sizes = true
	case "hold":
		s.hold = true
	case "commit", "abandon":
		s.hold = false
		if words[0] == "abandon" {
			s.abandon()
			s.give(nil)
		}
	case "findings":
		for _, f := range s.core.Findings(s.now) {
			s.say("%s %s for %v: %s: %s", f.Kind, f.Object, s.now.Sub(f.Since), f.Message, f.Action)
		}
	default:
		t.Fatalf("no such command: %s", line)
	}
	for turns := 0; !s.hold && (len(s.effects) > 0 || len(s.unsent) > 0); turns++ {
		if turns > 1000 {
			t.Fatalf("%s: the core still decides after 1000 turns", line)
		}
		if len(s.unsent) > 0 {
			done := s.unsent[0]
			s.unsent = s.unsent[1:]
			s.say("not sent: %s %s/%s", done.Executor, done.UID, done.WorkerID)
			s.give(done)
			continue
		}
		carried, ok := s.commit(len(s.effects))
		if !ok {
			s.say("abandoned: a compare failed")
		}
		s.show(carried)
		s.give(nil)
	}
}

// pass advances the clock by d and steps the core at each of its deadlines.
func (s *script) pass(d time.Duration) {
	end := s.now.Add(d)
	for range 1000 {
		next := s.core.NextDeadline()
		if next.IsZero() || next.After(end) {
			break
		}
		if next.After(s.now) {
			s.now = next
		}
		s.give(nil)
	}
	s.now = end
}

func worker(t *testing.T, name string) (uid string, workerID model.WorkerID) {
	if _, err := fmt.Sscanf(strings.NewReplacer("/", " ", ".", " ").Replace(name), "%s %d %d", &uid, &workerID.Index,
		&workerID.Number); err != nil {
		t.Fatalf("%q: %v", name, err)
	}
	return uid, workerID
}

// status returns the status of a worker that is written as STATE, STATE(exit code),
// STATE(REASON) or STATE(BAD_TASK).
func status(t *testing.T, text string) Status {
	name, detail, _ := strings.Cut(strings.TrimSuffix(text, ")"), "(")
	s := Status{State: workerState(t, name)}
	if code, err := strconv.ParseInt(detail, 10, 32); err == nil {
		n := int32(code)
		s.ExitCode = &n
	} else if detail == "BAD_TASK" {
		s.BadTask, s.Error = true, "no such file"
	} else {
		s.Reason = fault.Reason(detail)
	}
	return s
}

func workerState(t *testing.T, name string) model.WorkerState {
	for s := model.WorkerAssigned; s <= model.WorkerEvicted; s++ {
		if s.String() == name {
			return s
		}
	}
	t.Fatalf("no state %q", name)
	return 0
}

// show adds the actions that were carried out and the effects that were committed to the
// transcript.
func (s *script) show(actions []model.Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case model.Effect:
			for _, put := range a.Puts {
				s.say("put %s", record(put))
			}
			for _, ref := range a.Deletes {
				s.say("delete %s", refName(ref))
			}
			for _, x := range a.Expect {
				s.say("  expect %s", expectName(x))
			}
			for _, e := range a.Events {
				s.say("  event %s %s", eventNames[e.Kind], eventWorkers(e))
			}
		case Submit:
			fresh := ""
			if a.Fresh {
				fresh = ", fresh connection"
			}
			size := ""
			if s.sizes {
				size = fmt.Sprintf(" of %d", a.Workers)
			}
			volume := ""
			if a.Volume != nil {
				volume = " on " + a.Volume.ID
				if a.Volume.Create {
					volume = " on new " + a.Volume.ID
				}
			}
			s.say("submit %s %s/%s%s%s incarnation %d attempt %d%s", a.Executor, a.UID, a.Worker.ID, size, volume, a.Incarnation,
				a.Attempt, fresh)
		case Stop:
			epoch := ""
			if a.Epoch != 7 {
				epoch = fmt.Sprintf(" epoch %d", a.Epoch)
			}
			s.say("stop %s %s/%s%s incarnation %d grace %v", a.Executor, a.UID, a.Worker.ID, epoch, a.Incarnation, a.Grace)
		case DropVolumes:
			names := strings.Join(a.IDs, " ")
			if len(a.IDs) > 10 {
				names = fmt.Sprintf("%s … %s (%d)", a.IDs[0], a.IDs[len(a.IDs)-1], len(a.IDs))
			}
			s.say("drop %s %s incarnation %d", a.Executor, names, a.Incarnation)
		case MembersChanged:
			s.say("members of %s changed", a.Key.Job)
			s.core.Unwatch(a.Key)
		case model.Reply:
			s.say("reply %s", s.replyText(a))
		}
	}
}

var eventNames = map[model.EventKind]string{
	model.EventWorkerAssigned: "WORKER_ASSIGNED", model.EventWorkerStarted: "WORKER_STARTED",
	model.EventWorkerRunning: "WORKER_RUNNING", model.EventWorkerCompleted: "WORKER_COMPLETED",
	model.EventWorkerFailed: "WORKER_FAILED", model.EventWorkerLost: "WORKER_LOST",
	model.EventWorkerEvicting: "WORKER_EVICTING", model.EventWorkerEvicted: "WORKER_EVICTED",
	model.EventWorkerRequeued: "WORKER_REQUEUED",
}

func refName(ref model.Ref) string {
	switch ref.Kind {
	case model.KindTaskHeader:
		return "header " + ref.ID
	case model.KindTaskChunk:
		return fmt.Sprintf("chunk %s/%d", ref.ID, ref.Chunk)
	case model.KindReservation:
		return "reservation " + ref.ID
	case model.KindLeaseChunk:
		return "lease " + ref.ID
	}
	return ref.ID + "'s leader"
}

func expectName(x model.Expect) string {
	if x.Mod != 0 {
		return fmt.Sprintf("%s mod %d", refName(x.Ref), x.Mod)
	}
	return fmt.Sprintf("%s create %d", refName(x.Ref), x.Create)
}

func record(r model.Record) string {
	name := refName(r.Ref())
	switch r := r.(type) {
	case *model.TaskHeader:
		for _, flag := range []struct {
			set  bool
			name string
		}{{!r.Complete, "INCOMPLETE"}, {r.Withdrawn, "WITHDRAWN"}, {r.Stopping, "STOPPING"}, {r.Ended, "ENDED"}} {
			if flag.set {
				name += " " + flag.name
			}
		}
		if r.Message != "" {
			name += fmt.Sprintf(" (%s, %s)", r.Reason, r.Message)
		}
	case *model.TaskChunk:
		for _, w := range r.Workers {
			name += fmt.Sprintf(" %s=%s", w.ID, w.State)
			if w.Attempts > 0 {
				name += fmt.Sprintf("(%d)", w.Attempts)
			}
			if !w.RunningSince.IsZero() {
				name += " tracked"
			}
			if !w.UnansweredSince.IsZero() {
				name += " unanswered"
			}
			if w.Unconfirmed {
				name += " unconfirmed"
			}
			if w.NeverStarted {
				name += " never started"
			}
			if w.BadTask {
				name += " bad task"
			}
			if w.Requeue {
				name += " requeue"
			}
		}
	}
	return name
}

func eventWorkers(e model.JobEvent) string {
	var parts []string
	for _, w := range e.Workers {
		part := w.ID.String() + "@" + w.Executor
		if w.Message != "" {
			part += "(" + w.Message + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("%d workers", e.Count))
	}
	if e.Reason != "" {
		parts = append(parts, string(e.Reason))
	}
	return strings.Join(parts, " ")
}

func (s *script) replyText(r model.Reply) string {
	if r.Err != nil {
		return "error " + string(fault.Of(r.Err).Reason)
	}
	switch v := r.Value.(type) {
	case []model.DispatchOutcome:
		text := ""
		for _, o := range v {
			text += fmt.Sprintf("%s accepted=%v %s", o.UID, o.Accepted, o.Reason)
		}
		return strings.TrimSpace(text)
	case Reported:
		text := "reported"
		for _, ended := range v.Ended {
			text += fmt.Sprintf(" forget %s/%s", ended.UID, ended.Worker.ID)
		}
		if s.terms {
			text += fmt.Sprintf(", orphans in term %d: %d", v.Term, v.Orphans)
		}
		return text
	case Cleared:
		return fmt.Sprintf("cleared %d", v.Count)
	}
	return fmt.Sprint(r.Value)
}
