package chaos

import (
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
)

// version is the uid of a version as a number. Every accepted version has a higher number
// than all earlier versions. Epochs do not order versions, because versions that one
// transaction accepted have the same epoch.
type version int64

// versionOf parses a uid, which consists of a term and a number within that term, both in
// base 36.
func versionOf(uid string) version {
	high, low, _ := strings.Cut(uid, "-")
	term, _ := strconv.ParseInt(high, 36, 31)
	n, _ := strconv.ParseInt(low, 36, 32)
	return version(term<<32 | n)
}

// waiting is the state of a single copy of a reservation that fits on no executor. The
// reservation is queued until a client cancels it, so the state determines every answer.
type waiting struct {
	// version is the newest version. It is 0 if there is no version, and unseen if the
	// answer with the version was lost.
	version version
	// newest is the highest version in any answer so far.
	newest version
	shape  string
	lives  bool
}

const unseen = -1

// waitingModel is the model of keys whose reservations stay queued.
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

// running is the state of a reservation that Berth starts. Such a reservation may end or
// get requeues without a call, so the state does not determine every answer. But no
// answer may report a cancelled version as unfinished, and no answer may have a version
// newer than the requested versions.
type running struct {
	// newest is the highest requested version. cancelled is the value of newest when the
	// last cancel took effect.
	newest, cancelled version
	// open is set if an upsert with an unknown outcome may have created a newer version.
	open bool
}

// runningModel is the model of keys whose reservations are started.
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
		// If no new version is needed, an upsert returns the running version.
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
		return ended(t.state) || t.version > r.cancelled, r.seen(t)
	}
}

// seen updates the state with an answer about a requested version.
func (r running) seen(t outcome) running {
	if !t.part {
		r.newest = max(r.newest, t.version)
	}
	return r
}

// queued reports whether the workers are queued. A scheduling cycle that contains them
// may be in flight.
func queued(state berthv1.Reservation_State) bool {
	return state == berthv1.Reservation_QUEUED || state == berthv1.Reservation_LEASING
}

func cancelled(state berthv1.Reservation_State) bool {
	return state == berthv1.Reservation_CANCELLING || state == berthv1.Reservation_CANCELLED
}

func ended(state berthv1.Reservation_State) bool {
	switch state {
	case berthv1.Reservation_COMPLETED,
		berthv1.Reservation_FAILED, berthv1.Reservation_EXPIRED, berthv1.Reservation_REPLACED:
		return true
	}
	return cancelled(state)
}
