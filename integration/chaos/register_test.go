package chaos

import (
	"math"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// historyBuilder builds a history. Every call begins after the previous call has ended,
// unless overlapping is called.
type historyBuilder struct {
	calls []porcupine.Operation
	now   int64
}

func (p *historyBuilder) call(a request, t outcome) *historyBuilder {
	p.now += 10
	op := porcupine.Operation{Input: a, Output: t, Call: p.now, Return: p.now + 5}
	if !t.known {
		op.Return = math.MaxInt64
	}
	p.calls = append(p.calls, op)
	return p
}

// overlapping makes the newest call begin before the previous call has ended.
func (p *historyBuilder) overlapping() *historyBuilder {
	p.calls[len(p.calls)-1].Call -= 10
	return p
}

const (
	created   = berthv1.UpsertReservationRequest_CREATED
	unchanged = berthv1.UpsertReservationRequest_UNCHANGED
	replaced  = berthv1.UpsertReservationRequest_REPLACED
	isQueued  = berthv1.Reservation_QUEUED
	isActive  = berthv1.Reservation_ACTIVE
	isDeleted = berthv1.Reservation_CANCELLED
)

func (p *historyBuilder) upserts(shape string, v version,
	change berthv1.UpsertReservationRequest_Change) *historyBuilder {
	return p.call(request{verb: upsert, shape: shape}, outcome{known: true, version: v, state: isQueued, change: change})
}

func (p *historyBuilder) cancels(n int) *historyBuilder {
	return p.call(request{verb: cancel}, outcome{known: true, cancelled: n})
}

func (p *historyBuilder) gets(v version, state berthv1.Reservation_State) *historyBuilder {
	return p.call(request{verb: get}, outcome{known: true, version: v, state: state})
}

func (p *historyBuilder) unknown(v verb, shape string) *historyBuilder {
	return p.call(request{verb: v, shape: shape}, outcome{})
}

// The checker must be able to fail. For each history that it must accept, the test has a
// similar history that it must reject.
func TestLinearizableAnswers(t *testing.T) {
	for _, c := range []struct {
		name           string
		historyBuilder *historyBuilder
		model          porcupine.Model
		right          bool
	}{
		{"a life", new(historyBuilder).gets(0, 0).upserts("a", 1, created).upserts("a", 1, unchanged).upserts("b", 2,
			replaced).gets(2,
			isQueued).cancels(1).gets(2, isDeleted).cancels(0), waitingModel, true},
		{"an acknowledged upsert is lost", new(historyBuilder).upserts("a", 1, created).gets(0, 0), waitingModel, false},
		{"an old version is read", new(historyBuilder).upserts("a", 1, created).upserts("b", 2, replaced).gets(1, isQueued),
			waitingModel, false},
		{"an old version may be read while the new one is requested",
			new(historyBuilder).upserts("a", 1, created).upserts("b", 2, replaced).gets(1,
				isQueued).overlapping(), waitingModel, true},
		{"a cancelled version is read", new(historyBuilder).upserts("a", 1, created).cancels(1).gets(1, isQueued),
			waitingModel, false},
		{"an upsert is applied twice", new(historyBuilder).upserts("a", 1, created).upserts("a", 2, created), waitingModel,
			false},
		{"a replaced version is read again", new(historyBuilder).upserts("a", 2, created).cancels(1).upserts("a", 1,
			created), waitingModel, false},
		{"a cancel counts a version that did not exist", new(historyBuilder).upserts("a", 1, created).cancels(1).cancels(1),
			waitingModel, false},
		{"an upsert of unknown outcome was applied", new(historyBuilder).unknown(upsert, "a").gets(7, isQueued).cancels(1),
			waitingModel, true},
		{"an upsert of unknown outcome was not applied", new(historyBuilder).unknown(upsert, "a").gets(0, 0), waitingModel,
			true},
		{"an upsert of unknown outcome was applied twice", new(historyBuilder).unknown(upsert, "a").gets(7,
			isQueued).cancels(1).gets(8,
			isQueued), waitingModel, false},
		{"a cancel of unknown outcome was applied", new(historyBuilder).upserts("a", 1, created).unknown(cancel, "").gets(1,
			isDeleted).upserts("a",
			2, created), waitingModel, true},
		{"a version that was not cancelled ends", new(historyBuilder).upserts("a", 1, created).gets(1, isDeleted),
			waitingModel, false},

		{"a version starts and ends", new(historyBuilder).upserts("a", 1, created).gets(1, isActive).gets(1,
			berthv1.Reservation_COMPLETED).upserts("a", 2, created), runningModel, true},
		{"more workers are requested in addition to running ones",
			new(historyBuilder).upserts("a", 1, created).upserts("b", 2,
				replaced).upserts("c", 1, replaced).gets(1, isActive), runningModel, true},
		{"a cancelled version runs", new(historyBuilder).upserts("a", 1, created).cancels(1).gets(1, isActive), runningModel,
			false},
		{"an upsert of a cancelled version is unchanged", new(historyBuilder).upserts("a", 1,
			created).cancels(1).upserts("a", 1, unchanged),
			runningModel, false},
		{"an upsert may be unchanged while its version is cancelled",
			new(historyBuilder).upserts("a", 1, created).cancels(1).gets(1, isActive).overlapping(),
			runningModel, true},
		{"a version that was never requested is read", new(historyBuilder).upserts("a", 1, created).gets(2, isActive),
			runningModel, false},
		{"a cancel of unknown outcome", new(historyBuilder).upserts("a", 1, created).unknown(cancel, "").gets(1, isActive),
			runningModel, true},
	} {
		if got := porcupine.CheckOperations(c.model, c.historyBuilder.calls); got != c.right {
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

// The report contains the result of checking the history.
func TestHistoryReport(t *testing.T) {
	h := &history{begun: time.Now()}
	key := client.Key{Job: jobWaiting, Stage: "s"}
	h.record(0, request{key: key, verb: upsert, shape: "a"}, func() outcome {
		return outcome{known: true, version: 1, state: isQueued, change: created}
	})
	h.record(1, request{key: key, verb: get}, func() outcome { return outcome{known: true} })
	everything := func(client.Key) bool { return true }
	if found, keys, open := h.check(everything, waitingModel); len(found) != 1 || keys != 1 || open != 0 {
		t.Errorf("found %q in %d keys, %d open", found, keys, open)
	}
	if n, unknown := h.counts(); n[upsert] != 1 || n[get] != 1 || len(unknown) != 0 {
		t.Errorf("counted %v, %v", n, unknown)
	}
	h.record(0, request{key: key, verb: get}, func() outcome { return outcome{} })
	if n, unknown := h.counts(); n[get] != 2 || unknown[get] != 1 || unknown[upsert] != 0 {
		t.Errorf("counted %v, %v", n, unknown)
	}
	if h.longest <= 0 {
		t.Errorf("the longest call took %v", h.longest)
	}
}
