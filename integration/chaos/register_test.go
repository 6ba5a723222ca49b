package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// past builds a history. Every call begins after the previous one has ended, unless it
// overlaps.
type past struct {
	calls []porcupine.Operation
	now   int64
}

func (p *past) call(a ask, t told) *past {
	p.now += 10
	op := porcupine.Operation{Input: a, Output: t, Call: p.now, Return: p.now + 5}
	if !t.known {
		op.Return = math.MaxInt64
	}
	p.calls = append(p.calls, op)
	return p
}

// overlapping makes the newest call begin before the previous one ended.
func (p *past) overlapping() *past {
	p.calls[len(p.calls)-1].Call -= 10
	return p
}

const (
	created   = berthv1.UpsertReservationRequest_CREATED
	unchanged = berthv1.UpsertReservationRequest_UNCHANGED
	replaced  = berthv1.UpsertReservationRequest_REPLACED
	isQueued  = berthv1.Reservation_QUEUED
	isActive  = berthv1.Reservation_ACTIVE
	isGone    = berthv1.Reservation_CANCELLED
)

func (p *past) upserts(shape string, v version, change berthv1.UpsertReservationRequest_Change) *past {
	return p.call(ask{verb: upsert, shape: shape}, told{known: true, version: v, state: isQueued, change: change})
}

func (p *past) cancels(n int) *past {
	return p.call(ask{verb: cancel}, told{known: true, cancelled: n})
}

func (p *past) gets(v version, state berthv1.Reservation_State) *past {
	return p.call(ask{verb: get}, told{known: true, version: v, state: state})
}

func (p *past) unknown(v verb, shape string) *past {
	return p.call(ask{verb: v, shape: shape}, told{})
}

// The checker can fail: each history that it must reject is next to one that it must
// accept.
func TestLinearizableAnswers(t *testing.T) {
	for _, c := range []struct {
		name  string
		past  *past
		model porcupine.Model
		right bool
	}{
		{"a life", new(past).gets(0, 0).upserts("a", 1, created).upserts("a", 1, unchanged).upserts("b", 2, replaced).gets(2,
			isQueued).cancels(1).gets(2, isGone).cancels(0), waitingModel, true},
		{"an acknowledged upsert is lost", new(past).upserts("a", 1, created).gets(0, 0), waitingModel, false},
		{"an old version is read", new(past).upserts("a", 1, created).upserts("b", 2, replaced).gets(1, isQueued),
			waitingModel, false},
		{"an old version may be read while the new one is requested", new(past).upserts("a", 1, created).upserts("b", 2, replaced).gets(1,
			isQueued).overlapping(), waitingModel, true},
		{"a cancelled version is read", new(past).upserts("a", 1, created).cancels(1).gets(1, isQueued), waitingModel, false},
		{"an upsert is applied twice", new(past).upserts("a", 1, created).upserts("a", 2, created), waitingModel, false},
		{"a replaced version is read again", new(past).upserts("a", 2, created).cancels(1).upserts("a", 1, created), waitingModel, false},
		{"a cancel counts a version that did not exist", new(past).upserts("a", 1, created).cancels(1).cancels(1), waitingModel, false},
		{"an upsert of unknown outcome was applied", new(past).unknown(upsert, "a").gets(7, isQueued).cancels(1), waitingModel, true},
		{"an upsert of unknown outcome was not applied", new(past).unknown(upsert, "a").gets(0, 0), waitingModel, true},
		{"an upsert of unknown outcome was applied twice", new(past).unknown(upsert, "a").gets(7, isQueued).cancels(1).gets(8,
			isQueued), waitingModel, false},
		{"a cancel of unknown outcome was applied", new(past).upserts("a", 1, created).unknown(cancel, "").gets(1, isGone).upserts("a",
			2, created), waitingModel, true},
		{"a version that was not cancelled ends", new(past).upserts("a", 1, created).gets(1, isGone), waitingModel, false},

		{"a version starts and ends", new(past).upserts("a", 1, created).gets(1, isActive).gets(1,
			berthv1.Reservation_COMPLETED).upserts("a", 2, created), runningModel, true},
		{"more workers are requested in addition to running ones", new(past).upserts("a", 1, created).upserts("b", 2,
			replaced).upserts("c", 1, replaced).gets(1, isActive), runningModel, true},
		{"a cancelled version runs", new(past).upserts("a", 1, created).cancels(1).gets(1, isActive), runningModel, false},
		{"an upsert of a cancelled version is unchanged", new(past).upserts("a", 1, created).cancels(1).upserts("a", 1, unchanged),
			runningModel, false},
		{"an upsert may be unchanged while its version is cancelled", new(past).upserts("a", 1, created).cancels(1).gets(1, isActive).overlapping(),
			runningModel, true},
		{"a version that was never requested is read", new(past).upserts("a", 1, created).gets(2, isActive), runningModel, false},
		{"a cancel of unknown outcome", new(past).upserts("a", 1, created).unknown(cancel, "").gets(1, isActive),
			runningModel, true},
	} {
		if got := porcupine.CheckOperations(c.model, c.past.calls); got != c.right {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

func TestVersionsOrderByUID(t *testing.T) {
	ordered := []string{"9-z", "a-1", "a-2", "a-z", "a-10", "z-1", "10-1"}
	for n := 1; n < len(ordered); n++ {
		if versionOf(ordered[n-1]) >= versionOf(ordered[n]) {
			t.Errorf("%s is not before %s", ordered[n-1], ordered[n])
		}
	}
}

// The report has the result of the history.
func TestHistoryReport(t *testing.T) {
	h := &history{begun: time.Now()}
	key := client.Key{Job: jobWaiting, Stage: "s"}
	h.record(0, ask{key: key, verb: upsert, shape: "a"}, func() told {
		return told{known: true, version: 1, state: isQueued, change: created}
	})
	h.record(1, ask{key: key, verb: get}, func() told { return told{known: true} })
	everything := func(client.Key) bool { return true }
	if found, keys, open := h.judge(everything, waitingModel); len(found) != 1 || keys != 1 || open != 0 {
		t.Errorf("found %q in %d keys, %d open", found, keys, open)
	}
	if n, unknown := h.counts(); n[upsert] != 1 || n[get] != 1 || len(unknown) != 0 {
		t.Errorf("counted %v, %v", n, unknown)
	}
	h.record(0, ask{key: key, verb: get}, func() told { return told{} })
	if n, unknown := h.counts(); n[get] != 2 || unknown[get] != 1 || unknown[upsert] != 0 {
		t.Errorf("counted %v, %v", n, unknown)
	}
	if h.longest <= 0 {
		t.Errorf("the longest call took %v", h.longest)
	}
}
