package queue

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

func drawKey(t *rapid.T) model.Key {
	return model.Key{
		Job:   rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "job"),
		Stage: "s",
		Name:  rapid.SampledFrom([]string{"main", "more"}).Draw(t, "name"),
	}
}

func drawUpsert(t *rapid.T) Upsert {
	u := Upsert{
		Key:   drawKey(t),
		Count: rapid.Int32Range(1, 4).Draw(t, "count"),
		Spec: model.Spec{
			Constraints:  constraint.Constraints{SKU: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "sku")},
			Task:         model.Task{Command: rapid.SampledFrom([]string{"", "run"}).Draw(t, "command")},
			QueueTimeout: time.Hour,
		},
	}
	switch order := rapid.Int64Range(-1, 3).Draw(t, "order"); {
	case order >= 2:
	case order == 1:
		u.Spec.Priority.Class = model.ClassReplace
	default:
		u.Spec.Priority.Order = &order
	}
	return u
}

// Whatever is decided together, committed together and abandoned together, the
// core then knows what a core knows that reads the store afresh; and what was
// abandoned leaves no trace.
func TestCoreIsAFunctionOfTheStore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		w.successor(10)
		for range rapid.IntRange(1, 12).Draw(t, "rounds") {
			before := w.core.dump()
			w.hold, w.held = true, nil
			w.now = w.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			w.step(nil)
			for range rapid.IntRange(0, 6).Draw(t, "inputs") {
				w.input(drawRequest(t))
			}
			durable := rapid.IntRange(0, len(w.held)).Draw(t, "durable")
			w.commitHeld(t, durable)
			if durable < len(w.held) {
				w.core.Step(w.now, model.Abandoned{})
			}
			w.hold = false
			if durable == 0 && w.core.dump() != before {
				t.Fatalf("abandoned, but changed:\n%s\nbefore:\n%s", w.core.dump(), before)
			}
			w.compareAfresh(t)
			w.others(t)
			w.compareAfresh(t)
		}
	})
}

func drawRequest(t *rapid.T) any {
	id := rapid.SampledFrom([]string{"", "", "r1", "r2", "r3"}).Draw(t, "request")
	switch rapid.IntRange(0, 6).Draw(t, "kind") {
	case 0:
		return Cancel{Key: drawKey(t), RequestID: id}
	case 1:
		return CancelJob{Job: drawKey(t).Job, RequestID: id}
	case 2:
		if rapid.Bool().Draw(t, "job") {
			return Flush{Job: drawKey(t).Job, RequestID: id}
		}
		return Flush{Group: drawUpsert(t).withDefaults().Spec.Constraints.Group(), RequestID: id}
	}
	u := drawUpsert(t)
	u.RequestID = id
	u.Spec.TargetSize = rapid.SampledFrom([]int32{0, 0, 8, 9}).Draw(t, "target")
	return u
}

// commitHeld makes the first effects durable, several to a transaction as long
// as no record is touched twice.
func (w *world) commitHeld(t *rapid.T, durable int) {
	for done := 0; done < durable; {
		touched, n := map[model.Ref]bool{}, 0
		revision := w.revision + 1
		for ; done+n < durable; n++ {
			refs := slices.Clone(w.held[done+n].Deletes)
			for _, record := range w.held[done+n].Puts {
				refs = append(refs, record.Ref())
			}
			if slices.ContainsFunc(refs, func(ref model.Ref) bool { return touched[ref] }) {
				break
			}
			for _, ref := range refs {
				touched[ref] = true
			}
			w.revision = revision - 1
			w.apply(w.held[done+n])
			if rapid.Bool().Draw(t, "close") {
				n++
				break
			}
		}
		w.core.Step(w.now, model.Committed{Effects: n, Revision: revision})
		done += n
	}
}

// others moves what other services do: grants, tasks, ends.
func (w *world) others(t *rapid.T) {
	for _, ref := range w.refs() {
		r, ok := w.records[ref].record.(*model.Reservation)
		if !ok {
			continue
		}
		lease := model.Ref{Kind: model.KindLeaseChunk, ID: r.UID}
		header := model.Ref{Kind: model.KindTaskHeader, ID: r.UID}
		_, leased := w.records[lease]
		_, handed := w.records[header]
		switch what := rapid.IntRange(0, 4).Draw(t, "other"); {
		case what == 0 && r.State == model.Queued && !leased:
			w.foreign(w.leaseOf(r.UID))
		case what == 1 && r.State == model.Queued && leased:
			w.foreign(model.Changed{Ref: header, Record: &model.TaskHeader{UID: r.UID, Complete: rapid.Bool().Draw(t, "complete")}})
		case what == 2 && handed:
			w.foreign(model.Changed{Ref: header, Record: &model.TaskHeader{UID: r.UID, Complete: true, Ended: true}})
		case what == 3 && leased:
			w.foreign(model.Changed{Ref: lease})
		}
	}
}

func (w *world) compareAfresh(t *rapid.T) {
	fresh := New(w.core.config)
	for _, ref := range w.refs() {
		s := w.records[ref]
		fresh.Step(w.now, model.Changed{Ref: ref, Record: s.record, Create: s.create, Mod: s.mod})
	}
	if diff := gocmp.Diff(strings.Split(fresh.dump(), "\n"), strings.Split(w.core.dump(), "\n")); diff != "" {
		t.Fatalf("the core differs from the store:\n%s", diff)
	}
}

// twin is the obvious queue: a list of what waits, sorted when it is looked at.
type twin struct {
	waiting []*entry
	leased  []*entry
	used    map[string]map[int32]int32
	seq     int
}

type entry struct {
	u     Upsert
	seats map[int32]int32
	// epoch and seq are those of the place.
	epoch int64
	seq   int
}

func (e *entry) rank() int64 {
	if e.u.Spec.Priority.Order != nil {
		return *e.u.Spec.Priority.Order
	}
	if e.u.Spec.Priority.Class == model.ClassReplace {
		return 0
	}
	return e.epoch
}

func (m *twin) find(list []*entry, key model.Key) *entry {
	for _, e := range list {
		if e.u.Key == key {
			return e
		}
	}
	return nil
}

func (m *twin) drop(e *entry) {
	is := func(o *entry) bool { return o == e }
	m.waiting = slices.DeleteFunc(m.waiting, is)
	m.leased = slices.DeleteFunc(m.leased, is)
}

// queue is the order of one group.
func (m *twin) queue(sku string) []*entry {
	var queue []*entry
	for _, e := range m.waiting {
		if e.u.Spec.Constraints.SKU == sku {
			queue = append(queue, e)
		}
	}
	slices.SortFunc(queue, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(a.seq, b.seq))
	})
	return queue
}

func (m *twin) upsert(u Upsert, revision int64) model.Change {
	old := m.find(m.waiting, u.Key)
	if old == nil {
		old = m.find(m.leased, u.Key)
	}
	next := &entry{u: u, seats: map[int32]int32{}, epoch: revision, seq: m.seq}
	change := model.Created
	inPlace := false
	if old != nil {
		change = model.ChangeReplaced
		sameKind := old.u.Spec.Constraints.SKU == u.Spec.Constraints.SKU
		if sameKind && old.u.Count == u.Count && old.u.Spec.Task.Command == u.Spec.Task.Command {
			if old.u.Spec.Priority.Equal(u.Spec.Priority) {
				return model.Unchanged
			}
			old.u = u
			return model.Reordered
		}
		inPlace = sameKind && u.Count <= old.u.Count
		m.drop(old)
	}
	if inPlace {
		next.epoch, next.seq = old.epoch, old.seq
	} else {
		m.seq++
	}
	used := m.used[u.Key.Job]
	if used == nil {
		used = map[int32]int32{}
		m.used[u.Key.Job] = used
	}
	for i := range u.Count {
		if old != nil && old.seats[i] != 0 {
			next.seats[i] = old.seats[i]
			continue
		}
		used[i]++
		next.seats[i] = used[i]
	}
	m.waiting = append(m.waiting, next)
	return change
}

// The queue against a sorted list: the same order inside every group whatever
// is asked, cancelled, granted, refused and taken over; nothing lost, nothing
// twice, and every pass a prefix of each queue.
func TestQueueIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(Config{})
		p := &player{t: t, w: w, twin: &twin{used: map[string]map[int32]int32{}}}
		p.see(w.successor(10))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			p.now()
			p.play()
			p.compare()
		}
	})
}

type player struct {
	t     *rapid.T
	w     *world
	twin  *twin
	pass  *SendPass
	call  *HandOver
	reply *model.Reply
	term  int64
}

func (p *player) now() { p.w.now = p.w.now.Add(2 * time.Millisecond) }

func (p *player) see(actions []model.Action) {
	for _, action := range actions {
		switch a := action.(type) {
		case SendPass:
			if p.pass != nil {
				p.t.Fatalf("pass %d while %d is in flight", a.Pass, p.pass.Pass)
			}
			p.pass = &a
			p.comparePass(a)
		case HandOver:
			if p.call != nil {
				p.t.Fatalf("two hand-overs in flight")
			}
			p.call = &a
		case model.Reply:
			p.reply = &a
		}
	}
}

func (p *player) comparePass(pass SendPass) {
	offered := map[string][]model.Key{}
	for _, e := range pass.Entries {
		offered[e.Constraints.SKU] = append(offered[e.Constraints.SKU], e.Key)
		if e.Epoch == 0 || e.Mod == 0 {
			p.t.Fatalf("%s is offered and not durable", e.UID)
		}
	}
	for sku, keys := range offered {
		for i, key := range keys {
			if want := p.twin.queue(sku)[i].u.Key; key != want {
				p.t.Fatalf("pass %d offers %v of %s, not %v first", pass.Pass, key, sku, want)
			}
		}
	}
}

func (p *player) play() {
	switch rapid.IntRange(0, 9).Draw(p.t, "what") {
	case 0, 1, 2, 3:
		u := drawUpsert(p.t)
		want := p.twin.upsert(u, p.w.revision+1)
		p.see(p.w.input(u))
		if got := p.reply.Value.(Upserted).Change; got != want {
			p.t.Fatalf("%v: %s, want %s", u.Key, got, want)
		}
	case 4:
		key, want := drawKey(p.t), 0
		for _, list := range [][]*entry{p.twin.waiting, p.twin.leased} {
			if e := p.twin.find(list, key); e != nil {
				p.twin.drop(e)
				want++
			}
		}
		p.see(p.w.input(Cancel{Key: key}))
		if got := p.reply.Value.(Cancelled).Count; got != want {
			p.t.Fatalf("cancel of %v ended %d, want %d", key, got, want)
		}
	case 5, 6:
		p.finishPass()
	case 7, 8:
		p.finishHandOver()
	case 9:
		p.pass, p.call = nil, nil
		p.term++
		p.see(p.w.successor(10 + p.term))
	}
	p.now()
	p.see(p.w.step(nil))
	if next := p.w.core.NextDeadline(); !next.IsZero() && !next.After(p.w.now) {
		p.t.Fatalf("stepped at %v, and wants it again at %v", p.w.now, next)
	}
}

// finishPass grants a prefix of each queue, of what is still as it was offered.
func (p *player) finishPass() {
	if p.pass == nil {
		p.w.now = p.w.now.Add(time.Second)
		return
	}
	done := PassDone{Pass: p.pass.Pass}
	stopped := map[string]bool{}
	var leases []model.Changed
	for _, e := range p.pass.Entries {
		outcome := Outcome{UID: e.UID, Result: Behind}
		view, _ := p.w.core.GetUID(e.UID)
		if !stopped[e.Group] {
			switch {
			case view.Reservation.Mod != e.Mod:
				outcome.Result = Stale
			case rapid.Bool().Draw(p.t, "fits"):
				outcome.Result = Granted
				leases = append(leases, p.w.leaseOf(e.UID))
				granted := p.twin.find(p.twin.waiting, e.Key)
				p.twin.drop(granted)
				p.twin.leased = append(p.twin.leased, granted)
			default:
				outcome.Result = NoFit
			}
		}
		stopped[e.Group] = outcome.Result != Granted
		done.Outcomes = append(done.Outcomes, outcome)
	}
	p.pass = nil
	if len(leases) > 0 {
		p.w.write(leases...)
	}
	for i := range done.Outcomes {
		if done.Outcomes[i].Result == Granted {
			done.Outcomes[i].Lease = p.w.revision
		}
	}
	p.see(p.w.step(done))
	if len(leases) > 0 {
		p.see(p.w.show(leases...))
	}
}

// finishHandOver takes or refuses each task. What is taken runs and ends.
func (p *player) finishHandOver() {
	if p.call == nil {
		return
	}
	call := p.call
	p.call = nil
	var done HandedOver
	var tasks []model.Changed
	for _, task := range call.Tasks {
		view, _ := p.w.core.GetUID(task.UID)
		outcome := TaskOutcome{UID: task.UID}
		e := p.twin.find(p.twin.leased, task.Key)
		switch {
		case view.Reservation.Mod != task.Mod: // refused, and no fault of the lease
		case rapid.Bool().Draw(p.t, "taken"):
			outcome.Taken = true
			p.twin.drop(e)
			h := &model.TaskHeader{UID: task.UID, Complete: true, Ended: true}
			tasks = append(tasks, model.Changed{Ref: h.Ref(), Record: h}, model.Changed{Ref: p.w.leaseOf(task.UID).Ref})
		default:
			p.twin.drop(e)
			e.seq = p.twin.seq
			p.twin.seq++
			e.epoch = 1 << 40 // the newest of all, until the revision is known
			p.twin.waiting = append(p.twin.waiting, e)
		}
		done.Outcomes = append(done.Outcomes, outcome)
	}
	p.see(p.w.step(done))
	for _, e := range p.twin.waiting {
		if e.epoch == 1<<40 {
			view, _ := p.w.core.Get(e.u.Key)
			e.epoch = view.Reservation.Epoch
		}
	}
	if len(tasks) > 0 {
		p.see(p.w.foreign(tasks...))
	}
}

func (p *player) compare() {
	if got, want := p.w.core.Stats().Leased, len(p.twin.leased); got != want {
		p.t.Fatalf("%d leased, want %d", got, want)
	}
	total := 0
	for _, sku := range []string{"x", "y"} {
		queue := p.twin.queue(sku)
		total += len(queue)
		for i, e := range queue {
			view, ok := p.w.core.Get(e.u.Key)
			if !ok || view.Position != i+1 {
				p.t.Fatalf("%v is at %d, want %d of %s", e.u.Key, view.Position, i+1, sku)
			}
			var seats []model.Seat
			for index, number := range e.seats {
				seats = append(seats, model.Seat{Index: index, Number: number})
			}
			if !view.Reservation.Seats.Equal(model.SeatsOf(seats)) {
				p.t.Fatalf("%v has %v, want %v", e.u.Key, view.Reservation.Seats, e.seats)
			}
		}
	}
	for _, g := range p.w.pending() {
		total -= g.Reservations
	}
	if total != 0 {
		p.t.Fatalf("%d more are waiting than the core knows", total)
	}
}
