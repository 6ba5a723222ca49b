package chaos

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
)

// version is the rank of a version among all: its uid as a number, which rises with every
// accepted version. Epochs do not rank them, because versions that one transaction accepted
// have the same epoch.
type version int64

// versionOf parses a uid, which is a term and a number in it, both in base 36.
func versionOf(uid string) version {
	high, low, _ := strings.Cut(uid, "-")
	term, _ := strconv.ParseInt(high, 36, 31)
	n, _ := strconv.ParseInt(low, 36, 32)
	return version(term<<32 | n)
}

// waiting is the state of a single copy of a reservation that fits on no executor: it is
// queued until a client cancels it, so that every answer is determined.
type waiting struct {
	// version is the newest one: 0 for none, and unseen if the answer with it was lost.
	version version
	// newest is the highest version of any answer.
	newest version
	shape  string
	lives  bool
}

const unseen = -1

// waitingModel is the model of keys that stay queued.
var waitingModel = porcupine.Model{
	Init: func() any { return waiting{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(waiting).step(input.(request), output.(outcome))
	},
}

func (w waiting) step(a request, t outcome) (bool, any) {
	switch a.verb {
	case upsert:
		change := berthv1.UpsertReservationRequest_CREATED
		switch {
		case w.lives && w.shape == a.shape:
			if !t.known {
				return true, w
			}
			return t.change == berthv1.UpsertReservationRequest_UNCHANGED && w.shows(t.version), w.seen(t.version)
		case w.lives:
			change = berthv1.UpsertReservationRequest_REPLACED
		}
		w.version, w.shape, w.lives = unseen, a.shape, true
		if !t.known {
			return true, w
		}
		return t.change == change && w.shows(t.version), w.seen(t.version)
	case cancel:
		n := 0
		if w.lives {
			n = 1
		}
		w.lives = false
		return !t.known || t.cancelled == n, w
	default:
		if !t.known {
			return true, w
		}
		if t.version == 0 || w.version == 0 {
			return t.version == w.version, w
		}
		return w.shows(t.version) && w.lives == queued(t.state) && w.lives != cancelled(t.state), w.seen(t.version)
	}
}

// shows reports whether an answer may have this version.
func (w waiting) shows(v version) bool {
	return v == w.version || w.version == unseen && v > w.newest
}

func (w waiting) seen(v version) waiting {
	w.version, w.newest = v, max(w.newest, v)
	return w
}

// running is the state of a reservation that is started, and so may end or have requeues
// without a call: no answer has a version that was cancelled before, and none a version
// newer than the requests.
type running struct {
	// newest is the highest requested version, cancelled the highest of them when a cancel
	// took effect.
	newest, cancelled version
	// open is set if a version may be newer than those of the answers.
	open bool
}

// runningModel is the model of keys that are started.
var runningModel = porcupine.Model{
	Init: func() any { return running{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(running).step(input.(request), output.(outcome))
	},
}

func (r running) step(a request, t outcome) (bool, any) {
	switch a.verb {
	case upsert:
		if !t.known {
			r.open = true
			return true, r
		}
		// An upsert of a running version returns it if no new one is needed.
		fresh := t.change != berthv1.UpsertReservationRequest_CREATED || t.version > r.newest
		return fresh && t.version > r.cancelled, r.seen(t)
	case cancel:
		r.cancelled = r.newest
		return true, r
	default:
		switch {
		case !t.known:
			return true, r
		case t.version == 0:
			return r.newest == 0, r
		case !r.open && !t.part && t.version > r.newest:
			return false, r
		}
		return gone(t.state) || t.version > r.cancelled, r.seen(t)
	}
}

// seen updates the state with an answer about a requested version.
func (r running) seen(t outcome) running {
	if !t.part {
		r.newest = max(r.newest, t.version)
	}
	return r
}

// queued reports whether workers are queued. A cycle with them may be in flight.
func queued(state berthv1.Reservation_State) bool {
	return state == berthv1.Reservation_QUEUED || state == berthv1.Reservation_LEASING
}

func cancelled(state berthv1.Reservation_State) bool {
	return state == berthv1.Reservation_CANCELLING || state == berthv1.Reservation_CANCELLED
}

func gone(state berthv1.Reservation_State) bool {
	switch state {
	case berthv1.Reservation_COMPLETED,
		berthv1.Reservation_FAILED, berthv1.Reservation_EXPIRED, berthv1.Reservation_REPLACED:
		return true
	}
	return cancelled(state)
}
