package inventory

import "berth.dev/pkg/model"

// standing is why an executor may or may not be given work. The first that
// applies counts.
type standing uint8

const (
	// open: it may be given work.
	open standing = iota
	registered
	unreachable
	lost
	draining
	disabled
	overcommitted
	standings
)

// use is what an executor is used for.
type use uint8

const (
	// idle: it may be given work and holds none.
	idle use = iota
	// leased: it holds workers, none of which runs yet.
	leased
	// running: it has a worker that runs, or is being stopped.
	running
	// unavailable: it is not READY; or it holds nothing and may not be given
	// work.
	unavailable
	uses
)

func (h *host) useOf() use {
	switch {
	case h.state != model.ExecutorReady:
		return unavailable
	case h.hold.workers > 0 && h.hold.running > 0:
		return running
	case h.hold.workers > 0:
		return leased
	case h.standing != open:
		return unavailable
	}
	return idle
}

// tally adds n to what its class counts of the host.
func (h *host) tally(n int) {
	h.class.standing[h.standing] += n
	h.class.use[h.use] += n
	h.class.states[h.state] += n
	if len(h.requests) > 0 {
		h.class.shut += n
	}
}
