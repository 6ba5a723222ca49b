package chaos

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
)

// version is the place of a version among all: its uid as a number, which rises
// with every version that is accepted. Epochs do not do: those of versions that
// one transaction accepted are equal.
type version int64

// versionOf reads a uid, which is the term and a number in it, both to base 36.
func versionOf(uid string) version {
	high, low, _ := strings.Cut(uid, "-")
	term, _ := strconv.ParseInt(high, 36, 31)
	n, _ := strconv.ParseInt(low, 36, 32)
	return version(term<<32 | n)
}

// waiting is what a single copy would know of a reservation that no executor
// fits: it is queued until somebody cancels it, so every answer is determined.
type waiting struct {
	// version is the newest; 0 for none, and unseen while the answer that told it
	// was lost.
	version version
	// newest is the highest version told.
	newest version
	shape  string
	lives  bool
}

const unseen = -1

// waitingModel judges keys that only wait.
var waitingModel = porcupine.Model{
	Init: func() any { return waiting{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(waiting).step(input.(ask), output.(told))
	},
}

func (w waiting) step(a ask, t told) (bool, any) {
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

// shows says whether an answer may tell this version.
func (w waiting) shows(v version) bool {
	return v == w.version || w.version == unseen && v > w.newest
}

func (w waiting) seen(v version) waiting {
	w.version, w.newest = v, max(w.newest, v)
	return w
}

// running is what must hold of a reservation that is started, and so may end or
// have workers queued again by itself: no answer is older than what was
// cancelled, and none newer than what was asked.
type running struct {
	// newest is the highest version asked for, cancelled the highest of them when a
	// cancel took effect.
	newest, cancelled version
	// open says that a version may be newer than the newest told.
	open bool
}

// runningModel judges keys that are started.
var runningModel = porcupine.Model{
	Init: func() any { return running{} },
	Step: func(state, input, output any) (bool, any) {
		return state.(running).step(input.(ask), output.(told))
	},
}

func (r running) step(a ask, t told) (bool, any) {
	switch a.verb {
	case upsert:
		if !t.known {
			r.open = true
			return true, r
		}
		// One that runs is answered, where that needs no other beside it.
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

// seen learns from an answer about a version that was asked for.
func (r running) seen(t told) running {
	if !t.part {
		r.newest = max(r.newest, t.version)
	}
	return r
}

// queued says that somebody waits; a cycle that asks about it may be in flight.
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
