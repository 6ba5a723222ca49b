package queue

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// world simulates everything around the core. Its store commits each effect at once in a
// transaction of its own, and also has the records of other services.
type world struct {
	// cycle is the last cycle that the core sent. If measure is set, it is called with each
	// effect.
	cycle    model.Cycle
	measure  func(model.Effect)
	core     *Core
	now      time.Time
	revision int64
	token    uint64
	// records is the content of the store, with the revisions of each record.
	records map[model.Ref]stored
	// failing makes the next transaction fail.
	failing bool
	// hold collects effects in held instead of committing them.
	hold bool
	held []model.Effect
	// unseen has the written records that the view does not show yet. A command with the suffix -unseen
	// is hidden: it adds to them.
	unseen []model.Changed
	hidden bool
	// edges collects the rows of Edges that occur, if it is set.
	edges map[int]bool
}

type stored struct {
	record      model.Record
	create, mod int64
}

// begin is the time at which a transcript begins.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(config Config) *world {
	w := &world{
		core: New(config), now: begin,
		revision: 100, records: map[model.Ref]stored{},
	}
	// The registry was marked ready in an earlier term.
	ready := &model.Ready{Since: w.now, By: "auto"}
	w.records[ready.Ref()] = stored{ready, w.revision, w.revision}
	return w
}

// pending returns the pending groups, or nil before the registry is ready.
func (w *world) pending() []PendingGroup {
	groups, _ := w.allPending()
	return groups
}

// allPending returns the pending groups, or the error before the registry is ready.
func (w *world) allPending() ([]PendingGroup, error) {
	groups, _, err := w.core.Pending("", math.MaxInt)
	return groups, err
}

// step applies an event and carries out the actions that result, as the driver does. It
// returns the actions in order, including the actions that follow from the commits.
func (w *world) step(event model.Event) []model.Action {
	all := w.core.Step(w.now, event)
	for i := 0; i < len(all); i++ {
		if cycle, ok := all[i].(model.Cycle); ok {
			w.cycle = cycle
		}
		effect, ok := all[i].(model.Effect)
		if !ok {
			continue
		}
		if w.measure != nil {
			w.measure(effect)
		}
		if w.hold {
			w.held = append(w.held, effect)
			continue
		}
		if w.failing || !w.allowed(effect) {
			w.failing = false
			// The driver does not carry out actions that follow a failed effect.
			w.core.Step(w.now, model.Abandoned{})
			return append(all[:i:i], model.Abandoned{})
		}
		w.apply(effect)
		all = append(all, w.core.Step(w.now, model.Committed{Effects: 1, Revision: w.revision})...)
	}
	return all
}

// allowed reports whether the compares of an effect succeed.
func (w *world) allowed(effect model.Effect) bool {
	for _, e := range effect.Expect {
		s, there := w.records[e.Ref]
		if e.Absent && there || !e.Absent && (!there || e.Mod != 0 && e.Mod != s.mod || e.Create != 0 &&
			e.Create != s.create) {
			return false
		}
	}
	return true
}

func (w *world) apply(effect model.Effect) {
	w.checkEdges(effect)
	w.revision++
	seen := map[model.Ref]bool{}
	for _, record := range effect.Puts {
		ref := record.Ref()
		if seen[ref] {
			panic(fmt.Sprintf("%v is put twice in one effect", ref))
		}
		seen[ref] = true
		s := w.records[ref]
		if s.create == 0 {
			s.create = w.revision
		}
		w.records[ref] = stored{record, s.create, w.revision}
	}
	for _, ref := range effect.Deletes {
		if seen[ref] {
			panic(fmt.Sprintf("%v is put and deleted in one effect", ref))
		}
		seen[ref] = true
		delete(w.records, ref)
	}
}

// foreign writes records of other services in one transaction and shows them to the core. A
// change without a record deletes.
func (w *world) foreign(changes ...model.Changed) []model.Action {
	w.write(changes...)
	if w.hidden {
		w.unseen = append(w.unseen, changes...)
		return nil
	}
	return w.show(changes...)
}

func (w *world) write(changes ...model.Changed) {
	w.revision++
	for i, c := range changes {
		s := w.records[c.Ref]
		if c.Record == nil {
			delete(w.records, c.Ref)
		} else {
			if s.create == 0 {
				s.create = w.revision
			}
			s.mod, s.record = w.revision, c.Record
			w.records[c.Ref] = s
		}
		changes[i].Create, changes[i].Mod = s.create, w.revision
	}
}

func (w *world) show(changes ...model.Changed) []model.Action {
	var all []model.Action
	for _, c := range changes {
		all = append(all, w.step(c)...)
	}
	return append(all, w.step(model.Progress{Revision: w.revision})...)
}

// successor replaces the core by a new core that reads the store and is elected. The shuffle of the
// records depends on the term only.
func (w *world) successor(term int64) []model.Action {
	w.core, w.unseen = New(w.core.config), nil
	refs := w.refs()
	rand.New(rand.NewPCG(uint64(term), 0)).Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	var all []model.Action
	for _, ref := range refs {
		s := w.records[ref]
		all = append(all, w.step(model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})...)
	}
	w.revision++
	all = append(all, w.step(model.Progress{Revision: w.revision})...)
	return append(all, w.step(model.Elected{Term: term, Revision: w.revision})...)
}

func (w *world) refs() []model.Ref {
	return slices.SortedFunc(maps.Keys(w.records), func(a, b model.Ref) int {
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
}

func (w *world) input(request any) []model.Action {
	w.token++
	return w.step(model.Input{Token: w.token, Request: request})
}

// show returns the actions as text, one on each line.
func show(actions []model.Action) string {
	var b strings.Builder
	for _, action := range actions {
		switch a := action.(type) {
		case model.Effect:
			b.WriteString(showEffect(a))
		case model.Reply:
			fmt.Fprintf(&b, "reply %d: %s\n", a.Token, showReply(a))
		case model.Cycle:
			fmt.Fprintf(&b, "cycle %d at %d:", a.Number, a.Cut)
			for _, e := range a.Candidates {
				fmt.Fprintf(&b, " %s(%s)", e.Key, e.UID)
				if e.Unchanged {
					b.WriteString(" again")
				}
				if e.Hold {
					b.WriteString(" hold")
				}
				if e.Volume != nil {
					fmt.Fprintf(&b, " volume=%s", e.Volume.Resource)
				}
				if avoid := e.Constraints.AvoidFailed; len(avoid) > 0 {
					fmt.Fprintf(&b, " avoiding %s", strings.Join(avoid, ","))
				}
				if lists := e.Constraints.RefusedBy; len(lists) > 0 {
					fmt.Fprintf(&b, " and the lists of %s", strings.Join(lists, ","))
				}
				if e.Splits {
					b.WriteString(" splits")
				}
				if e.NextAt != 0 {
					fmt.Fprintf(&b, " next=%d", e.NextAt)
				}
			}
			b.WriteByte('\n')
		case model.Dispatch:
			b.WriteString("dispatch:")
			for _, task := range a.Tasks {
				fmt.Fprintf(&b, " %s(%s) mod=%d lease=%d", task.Key, task.UID, task.Mod, task.Lease)
			}
			b.WriteByte('\n')
		case model.Abandoned:
			b.WriteString("abandoned\n")
		}
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// showAttributes returns the attributes that a reservation requires.
func showAttributes(k constraint.Constraints) (text string) {
	for _, name := range slices.Sorted(maps.Keys(k.Attributes)) {
		text += " " + name + "=" + k.Attributes[name]
		if slices.Contains(k.Defaults, name) {
			text += "(default)"
		}
	}
	return text
}

func showEffect(e model.Effect) string {
	var parts []string
	for _, record := range e.Puts {
		switch r := record.(type) {
		case *model.Reservation:
			parts = append(parts, fmt.Sprintf("%s(%s) %s", r.Key, r.UID, r.State))
			if r.State == model.Queued {
				parts[len(parts)-1] += fmt.Sprintf(" %s place=%d", showWorkers(r.Workers), r.Place)
				if r.PlaceEpoch != 0 {
					parts[len(parts)-1] += fmt.Sprintf(" of %d", r.PlaceEpoch)
				}
				parts[len(parts)-1] += showAttributes(r.Spec.Constraints)
			}
			if len(r.Unwanted) > 0 {
				parts[len(parts)-1] += " unwanted=" + showWorkers(r.Unwanted)
			}
			for _, g := range r.StopGraces {
				parts[len(parts)-1] += fmt.Sprintf(" grace=%v", g.Grace)
				if len(g.Workers) > 0 {
					parts[len(parts)-1] += ":" + showWorkers(g.Workers)
				}
			}
			if len(r.Requeued) > 0 {
				parts[len(parts)-1] += " requeued=" + showWorkers(r.Requeued)
			}
			if len(r.Missing) > 0 {
				parts[len(parts)-1] += " missing=" + showWorkers(r.Missing)
			}
			if r.Ends != nil {
				parts[len(parts)-1] += showEnds(" ends", r.Ends.Own) + showEnds(" past", r.Ends.Past)
				if len(r.Ends.Counted) > 0 {
					parts[len(parts)-1] += " counted=" + showWorkers(r.Ends.Counted)
				}
			}
			if r.Round > 0 && r.State == model.Queued {
				parts[len(parts)-1] += fmt.Sprintf(" round=%d", r.Round)
			}
			if len(r.Earlier) > 0 && r.State == model.Queued {
				parts[len(parts)-1] += fmt.Sprintf(" earlier=%v", r.Earlier)
			}
			if len(r.EarlierOf) > 1 && r.State == model.Queued { // the workers of a round usually have equal ones
				parts[len(parts)-1] += fmt.Sprintf(" earlierOf=%v", r.EarlierOf)
			}
			if len(r.Continues) > 1 && r.State == model.Queued {
				parts[len(parts)-1] += fmt.Sprintf(" continues=%v", r.Continues)
			}
			if r.Parent != "" && r.State == model.Queued {
				parts[len(parts)-1] += " parent=" + r.Parent
			}
			if r.Reason != "" {
				parts[len(parts)-1] += " " + string(r.Reason)
			}
			if l := r.Latest; l != nil {
				fields := request.Differences(&l.Spec, &r.Spec).Names()
				if l.Count > 0 {
					fields = append(fields, fmt.Sprintf("count=%d", l.Count))
				}
				if len(l.Workers) > 0 {
					fields = append(fields, "workers="+showWorkers(l.Workers))
				}
				parts[len(parts)-1] += fmt.Sprintf(" latest=%v", fields)
			}
			for _, clock := range []struct {
				name string
				at   time.Time
			}{{"expires", r.ExpiresAt()}, {"notBefore", r.NotBefore}} {
				if !clock.at.IsZero() && !r.State.Terminal() {
					parts[len(parts)-1] += fmt.Sprintf(" %s=%v", clock.name, clock.at.Sub(begin))
				}
			}
		case *model.Stage:
			parts = append(parts, fmt.Sprintf("%s/%s target=%d used=%s", r.Job, r.Stage, r.TargetSize, showWorkers(r.Numbers)))
		case *model.Ready:
			parts = append(parts, "registry "+showReady(r))
		}
	}
	for _, ref := range e.Deletes {
		parts = append(parts, strings.TrimRight("delete "+ref.Key.String()+" "+ref.ID, "/ "))
	}
	for _, x := range e.Expect {
		what := "task"
		if x.Ref.Kind == model.KindLeaseChunk {
			what = "lease"
		}
		parts = append(parts, "if no "+what+" of "+x.Ref.ID)
	}
	text := "effect\n"
	for _, part := range parts {
		text += "  " + part + "\n"
	}
	for _, event := range e.Events {
		text += fmt.Sprintf("  event %s %s %d workers\n", eventNames[event.Kind], event.UID, event.Count)
	}
	return text
}

// showRecord returns the fields of a reservation that showEffect omits.
func (w *world) showRecord(uid string) string {
	view, ok := w.core.GetUID(uid)
	if !ok {
		return "not there\n"
	}
	r := view.Reservation
	text := fmt.Sprintf("%s(%s) %s avoid=%v", r.Key, uid, r.State, r.ConstraintsAt(w.now).AvoidFailed)
	if command := r.Spec.Task.Command; command != "" {
		text += " runs " + command
	}
	return text + ": " + r.Message + "\n"
}

var eventNames = map[model.EventKind]string{
	model.EventReservationQueued: "QUEUED", model.EventReservationReplaced: "REPLACED",
	model.EventReservationReordered: "REORDERED", model.EventReservationCancelled: "CANCELLED",
	model.EventReservationBound: "BOUND", model.EventReservationWithdrawn: "WITHDRAWN",
	model.EventReservationExpired: "EXPIRED", model.EventReservationCompleted: "COMPLETED",
	model.EventReservationAssigned: "ASSIGNED",
	model.EventReservationRequeued: "REQUEUED", model.EventReservationFailed: "FAILED",
}

func showReply(r model.Reply) string {
	if r.Err != nil {
		e := fault.Of(r.Err)
		text := fmt.Sprintf("%s %s", e.Kind, e.Reason)
		for _, f := range e.Fields {
			text += " " + f.Name
		}
		return text
	}
	switch v := r.Value.(type) {
	case Upserted:
		text := fmt.Sprintf("%s %s epoch=%d %s", v.Change, v.Reservation.UID, v.Reservation.Epoch, v.Reservation.State)
		for _, f := range v.FieldResults {
			if f.Applies != model.AppliesNow || v.Change == model.Updated {
				text += fmt.Sprintf(" %s:%s", f.Field, f.Applies)
			}
		}
		return text
	case Cancelled:
		return fmt.Sprintf("cancelled %d", v.Count) + unknownNote(v.Unknown)
	case MarkedReady:
		return "ready since " + v.Since.Format(time.TimeOnly)
	case WorkersCancelled:
		return fmt.Sprintf("cancelled %d workers", v.Count) + unknownNote(v.Unknown)
	}
	return fmt.Sprint(r.Value)
}

func unknownNote(unknown bool) string {
	if unknown {
		return ", unknown"
	}
	return ""
}

func showWorkers(workers model.WorkerSet) string {
	var parts []string
	for _, run := range workers {
		if run.First == run.Last {
			parts = append(parts, fmt.Sprintf("%d.%d", run.First, run.Number))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d.%d", run.First, run.Last, run.Number))
		}
	}
	return "[" + strings.Join(parts, " ") + "]"
}
