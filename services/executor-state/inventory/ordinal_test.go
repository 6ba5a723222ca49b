package inventory

import (
	"math"
	"strconv"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func (r *rig) ordinal(id string) uint32 {
	return r.keys[model.Ref{Kind: model.KindExecutor, ID: id}].record.(*model.Executor).Ordinal
}

// A record may have any ordinal. If a record has the highest ordinal, no ordinals are left
// for new executors. They are rejected and never share an ordinal.
func TestNoOrdinalFollowsTheHighest(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	r.write(&model.Executor{ID: "odd", Ordinal: math.MaxUint32, Incarnation: 1})
	r.catchUp()
	for _, id := range []string{"h2", "h3"} {
		g := small(id, 1000, 1)
		g.Address, g.Nonce = id+":1", id
		if _, err := r.do(g); !fault.Is(err, fault.ReasonTooLarge) {
			t.Errorf("%s: %v", id, err)
		}
	}
	r.drop(model.Ref{Kind: model.KindExecutor, ID: "odd"})
	r.catchUp()
	if r.ready(small("h2", 1000, 1)); r.ordinal("h2") != r.ordinal("h1")+1 {
		t.Errorf("ordinal after %d is %d", r.ordinal("h1"), r.ordinal("h2"))
	}
}

// The time of a step does not depend on the ordinals. A record with a high ordinal is added
// and removed like any other.
func TestARecordWithAHighOrdinalCostsNoMore(t *testing.T) {
	r := lead(DefaultConfig())
	r.ready(small("h1", 1000, 1))
	r.write(&model.Executor{ID: "odd", Ordinal: math.MaxUint32, Incarnation: 1})
	r.catchUp()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		r.drop(model.Ref{Kind: model.KindExecutor, ID: "odd"})
		r.catchUp()
	}()
	select {
	case <-gone: // a loop over all lower ordinals would take minutes
	case <-time.After(15 * time.Second):
		t.Fatal("the step iterates over all ordinals below the deleted one")
	}
}

// Ordinals suffice for any number of unreadable executor records, and for the executors
// that register while these records are unreadable.
func TestUnreadableExecutorsDoNotUseUpTheOrdinals(t *testing.T) {
	r := lead(DefaultConfig())
	for n := range 50 {
		r.ready(small("bad"+strconv.Itoa(n), 1000, 1))
	}
	r.without(func(ref model.Ref) bool { return ref.Kind == model.KindExecutor })
	r.ready(small("first", 1000, 1))
	first := r.ordinal("first")
	if first <= 50 {
		t.Errorf("the ordinal %d is that of an executor that cannot be read", first)
	}
	for n := range 20 {
		r.ready(small("more"+strconv.Itoa(n), 1000, 1))
	}
	if last := r.ordinal("more19"); last != first+20 {
		t.Errorf("20 executors more have ordinals from %d to %d", first, last)
	}
}
