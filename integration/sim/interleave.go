package sim

import (
	"hash/maphash"
	"io"
	"slices"
	"strconv"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// interleaving is a world without chance or faults in which a schedule chooses the order
// of events. At every step there is a list of possible events: a message arrives, or a
// node or an agent that has something to do takes its turn. By default the first event of
// the list happens, as with a fast network and idle machines. If the list is empty, time
// passes.
//
// A schedule contains only the differences from the default: the steps at which a client
// makes a call, and the steps at which another event than the first happens. So a
// schedule is short and determines a run.
type interleaving struct {
	w *World
	// step counts the choices so far.
	step int
	// before is called before every step.
	before func()
	// choices has the number of possible choices at each step.
	choices []int
	// turns has the steps after turns of the registry. Calls between two such steps meet
	// the same state of the registry.
	turns []int
	// held has the sources whose events wait until there is no other event.
	held map[string]bool
	// moved is the time at which the store last changed.
	moved    time.Time
	revision int64
}

// event is a possible next event.
type event struct {
	name string
	// of is the source of the event. If the event is held back, its source waits.
	of  string
	run func()
	// onOldView is set if the registry acts before it reads its view.
	onOldView bool
}

// newInterleaving returns a world in which all services have leaders and all hosts are
// ready. Until then, the default event happens at every step.
func newInterleaving(replicas int, hosts []Host, out io.Writer) *interleaving {
	w := newWorld(1, out)
	w.faultsStopped, w.directed, w.immediate = true, true, true
	w.startReplicas(replicas, queue.Config{}, inventory.DefaultConfig())
	w.clients = newClients(w)
	p := &interleaving{w: w, held: map[string]bool{}}
	first := func(int, int) int { return 0 }
	p.rest(0, first)
	for _, h := range hosts {
		w.agents = append(w.agents, newAgent(w, h))
	}
	p.rest(100*time.Millisecond, first)
	return p
}

// play plays a schedule until nothing happens any more.
func (p *interleaving) play(s schedule, call func(name string)) {
	moves, deviations := s.moves, s.deviations
	p.step, p.choices, p.turns = 0, nil, nil
	choose := func(n, onOldView int) int {
		p.choices = append(p.choices, n)
		p.step++
		if len(deviations) == 0 || deviations[0].at >= p.step {
			return 0
		}
		choice := deviations[0].choice
		if choice == actOnOldView {
			choice = onOldView
		}
		if choice < 0 {
			return 0 // the registry cannot act without its view yet
		}
		deviations = deviations[1:]
		return min(choice, n-1)
	}
	p.before = func() {
		for len(moves) > 0 && moves[0].at <= p.step {
			p.w.logf("%d: %s", p.step, moves[0].name)
			call(moves[0].name)
			moves = moves[1:]
		}
	}
	p.rest(restAfter, choose)
	for len(moves) > 0 && p.w.failure == nil {
		// The world is at rest before the step of the next call.
		p.step = max(p.step, moves[0].at)
		p.rest(restAfter, choose)
	}
}

// restAfter is the time without a change of the store after which a world is at rest. It
// is longer than any request or pause.
const restAfter = 6 * time.Second

// maxSteps is a limit that is higher than the number of steps of any schedule.
const maxSteps = 4000

// rest runs until nothing is left to do and the store has not changed for a while.
func (p *interleaving) rest(after time.Duration, choose func(n, onOldView int) int) {
	p.moved = p.w.now
	for n := 0; p.w.failure == nil; n++ {
		if p.before != nil {
			p.before()
		}
		if n == maxSteps {
			p.w.fail("the world does not come to rest within %d steps", n)
			return
		}
		list := p.events()
		if len(list) == 0 && p.w.now.Sub(p.moved) > after {
			return
		}
		p.take(list, choose)
		if r := p.w.store.Revision(); r != p.revision {
			p.revision, p.moved = r, p.w.now
		}
		p.w.check()
	}
}

// take executes one of the events. Two more choices are to hold the first event back until
// there is no other, and to let time pass.
func (p *interleaving) take(list []event, choose func(n, onOldView int) int) {
	if len(list) == 0 {
		p.pass()
		return
	}
	n := len(list) + 2
	if len(list) == 1 {
		n = 2 // there is no other event
	}
	onOldView := slices.IndexFunc(list, func(e event) bool { return e.onOldView })
	switch choice := choose(n, onOldView); {
	case choice < len(list):
		p.w.logf("%d:%d of %d: %s", p.step-1, choice, n, list[choice].name)
		list[choice].run()
	case choice == n-1:
		p.w.logf("%d:%d of %d: time passes", p.step-1, choice, n)
		p.pass()
	default:
		p.w.logf("%d:%d of %d: %s is held back", p.step-1, choice, n, list[0].name)
		p.held[list[0].of] = true
	}
}

// events returns the possible events in the default order: messages, the oldest first,
// then nodes, then agents. It omits events that are held back while there are other
// events.
func (p *interleaving) events() []event {
	all := p.enabled()
	free := slices.DeleteFunc(slices.Clone(all), func(e event) bool { return p.held[e.of] })
	if len(free) > 0 {
		return free
	}
	clear(p.held)
	return all
}

// enabled returns all possible events. A node that has something to do and whose view is
// not current may either read its view first or act without reading its view.
func (p *interleaving) enabled() []event {
	var list, onOldView []event
	for _, m := range p.w.network {
		if !m.at.After(p.w.now) {
			list = append(list, event{name: m.what, of: "message " + strconv.Itoa(m.seq), run: func() { p.w.deliver(m) }})
		}
	}
	for _, service := range services {
		for i, r := range p.w.replicas[service] {
			name := service + "-" + strconv.Itoa(i)
			if r.behind() || r.asked() {
				list = append(list, event{name: name, of: name, run: p.turn(service, r, false)})
			}
			if r.behind() && r.asked() {
				onOldView = append(onOldView, event{
					name: name + " with an outdated view", of: name, run: p.turn(service, r, true),
					onOldView: service == model.ServiceRegistry,
				})
			}
		}
	}
	for _, a := range p.w.agents {
		if a.busy() {
			list = append(list, event{name: a.id, of: a.id, run: a.turn})
		}
	}
	return append(list, onOldView...)
}

// turn returns a turn of a replica.
func (p *interleaving) turn(service string, r replica, onOldView bool) func() {
	return func() {
		if r.round(onOldView); service == model.ServiceRegistry {
			p.turns = append(p.turns, p.step)
		}
	}
}

// pass lets time pass until the next message, deadline or timer is due. It renews the
// etcd leases of the leaders, because in an interleaving no node is late.
func (p *interleaving) pass() {
	next := p.w.now.Add(leaderTTL / 6)
	sooner := func(at time.Time) {
		if at.After(p.w.now) && at.Before(next) {
			next = at
		}
	}
	for _, m := range p.w.network {
		sooner(m.at)
	}
	for _, service := range services {
		for _, r := range p.w.replicas[service] {
			sooner(r.due())
		}
	}
	p.w.pass(next.Sub(p.w.now))
	for _, service := range services {
		for _, r := range p.w.replicas[service] {
			if r.leads() {
				r.renew()
			}
		}
	}
	for _, m := range slices.Clone(p.w.network) {
		if m.what == timer && !m.at.After(p.w.now) {
			p.w.deliver(m)
		}
	}
}

// deliver delivers one message.
func (w *World) deliver(m *message) {
	w.network = slices.DeleteFunc(w.network, func(o *message) bool { return o == m })
	m.deliver()
}

// history returns a hash of all records that were stored. Runs with the same history made
// the same decisions, even if the order of messages and turns differed.
func (w *World) history(seed maphash.Seed) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, r := range w.store.History() {
		for _, c := range r.Changes {
			ref, ok := w.space.Parse(c.Key)
			if !ok || ref.Kind == model.KindChain {
				continue // job events repeat records, and chains repeat terms
			}
			h.WriteString(c.Key)
			h.Write(c.Value)
			maphash.WriteComparable(&h, [2]int64{r.Revision, c.Mod})
		}
	}
	return h.Sum64()
}
