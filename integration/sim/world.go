package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc"

	"berth.dev/cmd/berth/audit"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/store"
	"berth.dev/services/assigner"
	"berth.dev/services/assigner/dispatch"
	executorstate "berth.dev/services/executor-state"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry"
	"berth.dev/services/registry/queue"
)

// services lists the services in the order of their turns.
var services = model.Services

const (
	leaderTTL   = 5 * time.Second
	presenceTTL = 15 * time.Second
)

// startTime is the start time of every world.
var startTime = time.Unix(1_000_000, 0).UTC()

// World is one run.
type World struct {
	rng   *rand.Rand
	now   time.Time
	out   io.Writer // the transcript
	space keyspace.Space
	store *store.Fake
	audit *audit.Auditor
	// audited is the last revision that was checked.
	audited int64
	stored  stored

	// faultsStopped is set once there are no more faults.
	faultsStopped bool
	// directed is set if only a Stage causes events.
	directed bool
	// immediate is set if messages arrive as soon as they are chosen.
	immediate bool
	// retention is how long ended versions are kept; default as in production. If it is short,
	// names are used again and start and stop requests may arrive very late. No call is
	// executed that much later than it was made, because the registry would not recognize a
	// repeat.
	retention time.Duration
	// lostAfter is how long an executor may be absent before it is LOST.
	lostAfter time.Duration
	// pause is the longest time without an event, faultPercent the percentage of steps with a
	// fault.
	pause        time.Duration
	faultPercent int
	full         full
	// rogueClient sends invalid requests.
	rogueClient rogueClient
	// refusals counts registrations that were rejected because of their secret, exits the
	// superseded agents that have exited.
	refusals, exits int
	// submitting is called with every start request that is sent.
	submitting func(dispatch.Submit)

	replicas map[string][]replica
	network  []*message
	due      []int // buffer of deliverOne
	sequence int
	agents   []*agent
	clients  *clients
	starts   starts
	// lives is set if reservations have lifetimes, and restart and replace their workers.
	lives   bool
	volumes volumes
	holds   holds
	cells   cells
	seams   seams
	gangs   gangs
	moves   moves
	// unready has the workers that have started and not reported yet that they are ready.
	unready  map[unready]bool
	promised map[promise]bool
	// presences has the presences of executors, by ID.
	presences map[string]*presence
	failure   error
}

// message is a message in transit.
type message struct {
	at      time.Time
	seq     int
	what    string
	deliver func()
}

// NewWorld returns the world of a seed. The world writes its transcript to out.
func NewWorld(seed uint64, out io.Writer) *World {
	w := newWorld(seed, out)
	config := inventory.DefaultConfig()
	w.lostAfter = 30 * time.Second
	w.seams = newSeams(seed)
	all := w.seams.everything
	w.cells.rng = rand.New(rand.NewPCG(seed, 0x63656c6c73))
	if w.cells.enabled = w.cells.rng.IntN(3) == 0 || all; w.cells.enabled && w.cells.rng.IntN(2) == 0 {
		w.lostAfter = 45 * time.Second // a cell then withdraws before it is LOST
	}
	config.LostAfter, config.HoldBackFrom = w.lostAfter, 100
	hosts := 4
	w.pause, w.faultPercent = time.Duration(1+w.rng.IntN(4))*time.Second, 1+w.rng.IntN(4)
	if w.rng.IntN(2) == 0 {
		// Names are used again, as in months of production, and the few hosts get the same
		// ones.
		w.retention, hosts = time.Second, 2
		w.pause, w.faultPercent = time.Second, 1
	}
	w.startReplicas(2, queue.Config{KeepEnded: w.retention}, config)
	for i := range hosts {
		host := Host{
			ID: fmt.Sprintf("host-%d", i), SKU: "small", Attributes: map[string]string{"zone": string('a' + rune(i%2))},
			Resources: resource.Vector{"slots": 4, "cpu": 4000},
		}
		if w.seams.enabled && i == hosts-1 {
			host.Resources["cpu"] = 8000 // another shape
		}
		w.agents = append(w.agents, newAgent(w, host))
	}
	w.lives = w.rng.IntN(3) == 0 || all
	if w.volumes.enabled = rand.New(rand.NewPCG(seed, 0x766f6c756d65)).IntN(3) == 0 || all; w.volumes.enabled {
		w.agents[0].disk.volumes[foreign] = true
	}
	w.holds.rng = rand.New(rand.NewPCG(seed, 0x686f6c6473))
	w.holds.enabled = w.holds.rng.IntN(3) == 0 || all
	if w.cells.enabled {
		w.addCells()
		w.holds.enabled = w.holds.enabled || w.cells.rng.IntN(2) == 0
	}
	w.clients = newClients(w)
	w.rogueClient.draws = rand.New(rand.NewPCG(seed, 0x737472616e676572)).IntN
	w.rogueClient.sendsValid = w.rogueClient.draws(4) == 0
	return w
}

func newWorld(seed uint64, out io.Writer) *World {
	w := &World{
		rng: rand.New(rand.NewPCG(seed, 0x6265727468)), now: startTime, out: out,
		space: keyspace.New("sim"), replicas: map[string][]replica{}, starts: starts{}, promised: map[promise]bool{},
		unready:   map[unready]bool{},
		volumes:   newVolumes(),
		gangs:     gangs{},
		moves:     newMoves(),
		presences: map[string]*presence{}, stored: stored{kinds: map[model.Kind]map[string]*storedValue{}},
	}
	w.store = store.NewFake(store.FakeConfig{Clock: func() time.Time { return w.now }})
	w.store.SetHook(w.storeFault)
	w.audit = audit.New(w.space)
	return w
}

// startReplicas starts n replicas of each service.
func (w *World) startReplicas(n int, q queue.Config, inv inventory.Config) {
	for i := range n {
		w.replicas[model.ServiceRegistry] = append(w.replicas[model.ServiceRegistry],
			newNode(w, model.ServiceRegistry, i, func() *queue.Core { return queue.New(q) }, w.performRegistry,
				func(s grpc.ServiceRegistrar, owner loop.Owner[*queue.Core]) { registry.Serve(s, owner, nil) }))
		w.replicas[model.ServiceExecutorState] = append(w.replicas[model.ServiceExecutorState],
			newNode(w, model.ServiceExecutorState, i, func() *inventory.Core { return inventory.New(inv) }, nil,
				func(s grpc.ServiceRegistrar, owner loop.Owner[*inventory.Core]) {
					executorstate.Serve(s, owner, "default")
				}))
		w.replicas[model.ServiceAssigner] = append(w.replicas[model.ServiceAssigner],
			newNode(w, model.ServiceAssigner, i, func() *dispatch.Core { return dispatch.New(dispatch.Default) },
				w.performAssigner,
				func(s grpc.ServiceRegistrar, owner loop.Owner[*dispatch.Core]) { assigner.Serve(s, owner, nil) }))
	}
}

// Run plays a number of steps with faults and then waits until the world is at rest. It
// returns the first violation.
func (w *World) Run(steps int) error {
	if w.cells.enabled {
		steps *= 2 // what an offer leads to takes many steps
	}
	for n := range steps {
		w.step()
		if n%8 == 0 {
			w.checkDemand() // which takes as long as a step
		}
		if w.check(); w.failure != nil {
			return w.failure
		}
	}
	return w.settle()
}

// fault is true once in n times, and never after the faults have stopped.
func (w *World) fault(n int) bool { return !w.faultsStopped && w.rng.IntN(n) == 0 }

func (w *World) logf(format string, args ...any) {
	if w.out == io.Discard {
		return
	}
	fmt.Fprintf(w.out, "%8.3f  r%-5d %s\n", w.now.Sub(startTime).Seconds(), w.store.Revision(),
		fmt.Sprintf(format, args...))
}

func (w *World) fail(format string, args ...any) {
	if w.failure == nil {
		w.failure = fmt.Errorf(format, args...)
		w.logf("FAILED: %v", w.failure)
		w.dump()
	}
}

// step lets one random event happen.
func (w *World) step() {
	w.stepCells()
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.someReplica().turn()
	case n < 75:
		w.deliverOne()
	case n < 82:
		w.agents[w.rng.IntN(len(w.agents))].turn()
	case n < 88:
		w.pass(time.Duration(w.rng.IntN(200)) * time.Millisecond)
	case n < 90:
		w.pass(time.Duration(w.rng.IntN(int(w.pause.Milliseconds()))) * time.Millisecond)
	case n < 100-w.faultPercent:
		w.clients.act()
	default:
		w.injectFault()
	}
}

// someReplica returns a random replica, usually a replica that has something to do.
// Otherwise most steps of a run would be turns of standbys.
func (w *World) someReplica() replica {
	if w.rng.IntN(4) == 0 {
		return w.anyReplica()
	}
	var busy []replica
	for _, service := range services {
		for _, r := range w.replicas[service] {
			if r.behind() || r.asked() {
				busy = append(busy, r)
			}
		}
	}
	if len(busy) == 0 {
		return w.anyReplica()
	}
	return busy[w.rng.IntN(len(busy))]
}

func (w *World) anyReplica() replica {
	list := w.replicas[services[w.rng.IntN(len(services))]]
	return list[w.rng.IntN(len(list))]
}

// injectFault is a fault of the world itself.
func (w *World) injectFault() {
	if w.volumes.enabled && w.rng.IntN(8) == 0 {
		w.diskFault()
		return
	}
	switch w.rng.IntN(10) {
	case 0, 1:
		w.anyReplica().crash()
	case 2:
		// The leader's key is deleted while the leader runs: a false liveness probe.
		service := services[w.rng.IntN(len(services))]
		w.logf("%s: the leader's key is deleted under it", service)
		w.evict(service)
	case 3:
		w.agents[w.rng.IntN(len(w.agents))].crash()
	case 4:
		a := w.agents[w.rng.IntN(len(w.agents))]
		a.partitioned = !a.partitioned
		w.logf("%s: cut off: %v", a.id, a.partitioned)
		if !a.partitioned && a.cell == nil && a.up() && w.rng.IntN(4) == 0 {
			w.logf("%s: has been isolated for too long, and stops its workers", a.id)
			a.stopAll()
		}
	case 5:
		if w.isFull() {
			break // the store would reject the proposals
		}
		if n := w.store.ReleaseHeld(); n > 0 {
			w.logf("store: %d late proposals are committed", n)
		}
	case 6:
		w.store.BreakWatches()
	case 7:
		switch w.rng.IntN(6) {
		case 0:
			w.store.Compact(w.store.Revision())
			w.logf("store: compacted")
		case 1, 2, 3:
			w.startSecondAgent()
		}
	case 8:
		a := w.agents[w.rng.IntN(len(w.agents))]
		n := w.rng.IntN(20_000)
		if n%4 == 0 {
			a.rejectsLeader = true
			w.logf("%s: rejects its leader until it registers again", a.id)
			break
		}
		if n%4 == 1 {
			a.silent = !a.silent
			w.logf("%s: answers no requests: %v", a.id, a.silent)
			break
		}
		a.refusesUntil = w.now.Add(time.Duration(n) * time.Millisecond)
		w.logf("%s: starts no workers for a while", a.id)
	case 9:
		w.fill()
	}
}

// startSecondAgent starts another agent with the ID of an existing one, on another host and with
// another secret, while the first one is cut off: an operator assumed that its host was dead.
func (w *World) startSecondAgent() {
	first := w.agents[w.rng.IntN(len(w.agents))]
	if first.exited || slices.ContainsFunc(w.agents, func(a *agent) bool {
		return a != first && a.id == first.id &&
			!a.exited
	}) {
		return
	}
	a := newAgent(w, first.host)
	a.address = fmt.Sprintf("%s:%d", a.id, len(w.agents)+1)
	a.secret = "secret at " + a.address
	w.logf("%s: another agent starts at %s", a.id, a.address)
	w.agents = append(w.agents, a)
	first.partitioned = true
}

// pass lets time pass.
func (w *World) pass(d time.Duration) {
	w.now = w.now.Add(d)
	w.store.Tick()
}

// storeFault determines the outcome of a call to the store.
func (w *World) storeFault(_ context.Context, call store.Call) store.Outcome {
	if w.isFull() && call.Adds() {
		return w.refuse()
	}
	if call.Method != store.MethodTxn {
		return store.Outcome{}
	}
	switch {
	case w.fault(60):
		return store.Drop()
	case w.fault(60): //nolint:gocritic // each call draws a new number
		return store.DropAnswer()
	case w.fault(150):
		return store.Hold()
	}
	return store.Outcome{}
}

// send puts a message on the network. While w.faultsStopped is false, the message may be lost or late.
func (w *World) send(what string, deliver func()) {
	if w.fault(12) {
		w.logf("lost: %s", what)
		return
	}
	delay := time.Duration(0)
	if !w.immediate {
		delay = time.Duration(w.rng.IntN(20)) * time.Millisecond
	}
	if w.fault(20) {
		delay = time.Duration(w.rng.IntN(20_000)) * time.Millisecond
	}
	w.sequence++
	w.network = append(w.network, &message{at: w.now.Add(delay), seq: w.sequence, what: what, deliver: deliver})
}

// releaseLateMessages delivers a message late, within a time. No promise may depend on messages that
// arrive in order or soon: a call can arrive after later ones, and where names are used
// again, a request of an old epoch after those of a new one.
func (w *World) releaseLateMessages(what string, within time.Duration, deliver func()) {
	w.sequence++
	at := w.now.Add(time.Duration(w.rng.IntN(int(within.Milliseconds()))) * time.Millisecond)
	w.network = append(w.network, &message{at: at, seq: w.sequence, what: what, deliver: deliver})
}

// deliverOne delivers a random message that is due.
func (w *World) deliverOne() bool {
	due := w.due[:0]
	for i, m := range w.network {
		if !m.at.After(w.now) {
			due = append(due, i)
		}
	}
	if w.due = due; len(due) == 0 {
		return false
	}
	i := due[w.rng.IntN(len(due))]
	m := w.network[i]
	w.network = append(w.network[:i], w.network[i+1:]...)
	m.deliver()
	return true
}

// check checks every revision since the last check.
func (w *World) check() {
	for _, r := range w.since(w.audited) {
		w.audit.Apply(store.Batch{Revision: r.Revision, Changes: r.Changes})
		for _, c := range r.Changes {
			w.observe(c)
		}
		w.audited = r.Revision
	}
	if v := w.audit.Violations(); len(v) > 0 {
		w.fail("invariant: %+v", v[0])
	}
}

// settle stops all faults, waits until nothing changes any more except for offers, and checks the
// result.
func (w *World) settle() error {
	w.faultsStopped = true
	w.logf("the faults stop")
	w.full.until = w.now
	w.finalCalls()
	w.store.ReleaseHeld()
	for _, a := range w.agents {
		a.partitioned, a.silent, a.down = false, false, false
		if a.rejectsLeader {
			w.logf("%s: the agent is restarted", a.id)
			a.die()
		}
		if a.disk.wiped {
			// If the first report about a worker was its end, only the list of a later
			// incarnation proves that its volume was deleted.
			w.later(40*time.Second, a.die)
		}
	}
	const (
		quiet       = 60     // rounds of a second without a new revision
		maxRevision = 10_000 // far above that of a world that comes to rest
	)
	last, still := w.progress(), 0
	for second := 0; still < quiet || slices.ContainsFunc(w.agents, (*agent).hasUnreported); second++ {
		if second > 10_000 || last > maxRevision {
			w.fail("the world does not come to rest: revision %d", last)
			return w.failure
		}
		for rest := w.now.Add(time.Second); w.now.Before(rest); {
			if w.round(); w.failure != nil {
				return w.failure
			}
			if !w.inFlight() {
				w.pass(rest.Sub(w.now)) // no replica or agent has anything to do before
				w.check()               // so that the world sees an expiry no later than the replicas
			}
		}
		if r := w.progress(); r != last || w.delayed() {
			last, still = r, 0
		} else {
			still++
		}
	}
	w.checkRest()
	return w.failure
}

// inFlight reports whether a replica or an agent has something to do now, or a message is
// in transit. Timers do not count.
func (w *World) inFlight() bool {
	for _, service := range services {
		if slices.ContainsFunc(w.replicas[service], func(r replica) bool { return r.behind() || r.asked() }) {
			return true
		}
	}
	return slices.ContainsFunc(w.network, func(m *message) bool { return m.what != timer }) ||
		slices.ContainsFunc(w.agents, func(a *agent) bool { return a.busy() })
}

// round gives each replica and agent a turn, delivers the messages that are due, and lets
// a moment pass.
func (w *World) round() {
	for _, service := range services {
		for _, r := range w.replicas[service] {
			r.turn()
		}
	}
	for _, a := range w.agents {
		a.turn()
	}
	for w.deliverOne() {
	}
	w.check() // so that a change counts from the time at which its replica made it
	w.pass(30 * time.Millisecond)
	w.check() // so that the world sees an expiry no later than the replicas
}
