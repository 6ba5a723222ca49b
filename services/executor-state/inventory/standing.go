package inventory

import "berth.dev/pkg/model"

// standing is why an executor may or may not be given work. The first that
// applies counts. It is the one place that decides it: an executor is in a
// bucket, and shown as free, exactly when it is open.
type standing uint8

const (
	// open: it may be given work.
	open standing = iota
	registered
	unreachable
	lost
	quarantined
	draining
	disabled
	overcommitted
	standings
)

// standingNow is the standing of a host that is placed.
func (h *host) standingNow() standing {
	switch s := h.standingOf(); {
	case s != open:
		return s
	case len(h.class.requests) > 0:
		return disabled
	case !h.listed:
		return overcommitted
	}
	return open
}

// standingOf derives the standing but for what depends on the class and on what the
// executor holds.
func (h *host) standingOf() standing {
	switch {
	case h.shown() == model.ExecutorRegistered:
		return registered
	case h.state == model.ExecutorUnreachable:
		return unreachable
	case h.state == model.ExecutorLost:
		return lost
	case h.hold.isolated:
		return quarantined
	case h.executor.Draining:
		return draining
	case len(h.named) > 0:
		return disabled
	}
	return open
}

// use is what an executor is used for.
type use uint8

const (
	// idle: it may be given work and holds none.
	idle use = iota
	// leased: it holds workers, none of which runs yet.
	leased
	// running: it has a worker that runs, or is being stopped.
	running
	// unavailable: it is not READY, and not LOST; or it holds nothing and may not be given
	// work.
	unavailable
	// gone: it is LOST. Nobody counts on it any more.
	gone
	uses
)

func (h *host) useOf() use {
	switch {
	case h.state == model.ExecutorLost:
		return gone
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

// stand derives the standing and the use of a host that is placed, and tallies them.
func (h *host) stand() {
	h.standing = h.standingNow()
	h.use = h.useOf()
	h.shut = h.withheld() || h.executor.Draining
	h.tally(1)
}

// tally adds n to what its class, its pools and its SKU count of the host, as it
// was placed.
func (h *host) tally(n int) {
	h.class.standing[h.standing] += n
	h.shape.standing[h.standing] += n
	if h.standing != lost {
		for _, crew := range h.class.crews {
			crew.living += n
		}
	}
	s := h.shape.sku
	s.use[h.use] += n
	if h.shut && h.use != gone {
		s.shut += n
	}
}
