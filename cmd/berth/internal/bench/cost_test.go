package bench

import (
	"os"
	"testing"
	"time"

	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// TestCostOfThisProcess uses some processor time and checks that it is measured.
func TestCostOfThisProcess(t *testing.T) {
	pids := map[string][]int{kindLoad: {os.Getpid()}}
	from, err := measureUsage(pids)
	if err != nil {
		t.Fatal(err)
	}
	to := from
	for deadline := time.Now().Add(time.Minute); to.cpu[kindLoad]-from.cpu[kindLoad] < 0.05; {
		if time.Now().After(deadline) {
			t.Fatal("no processor time is measured")
		}
		if to, err = measureUsage(pids); err != nil {
			t.Fatal(err)
		}
	}
	c := cost("spin", 1, from, to)
	if to.memory[kindLoad] <= 0 || c.CPU[kindLoad] < 0.05 || c.Seconds <= 0 || c.Others < 0 {
		t.Errorf("%+v", c)
	}
	if _, err := measureUsage(map[string][]int{"none": {-1}}); err == nil {
		t.Error("a process that does not exist is measured")
	}
}

// TestWritesOfAPhase checks that a phase counts the writes after its first revision, up
// to and including its last revision.
func TestWritesOfAPhase(t *testing.T) {
	space := keyspace.New("c")
	phase := func(from, to int64) *Cost { return &Cost{from: from, to: to, Writes: map[string]int{}} }
	phases := []*Cost{phase(10, 20), phase(20, 20), phase(25, 30)}
	for _, put := range []struct {
		mod int64
		key string
	}{
		{10, space.Key(model.Ref{Kind: model.KindChain, ID: "registry"})}, // before
		{11, space.Key(model.Ref{Kind: model.KindChain, ID: "registry"})},
		{20, space.Key(model.Ref{Kind: model.KindReservation, Key: model.Key{Job: "j", Stage: "s", Name: "main"},
			ID: "1-1"})},
		{21, space.Key(model.Ref{Kind: model.KindStage, Key: model.Key{Job: "j", Stage: "s"}})}, // between
		{26, space.Event(keyspace.EventKey{Job: "j", Service: "registry", Segment: 7, Number: 1})},
		{26, space.Key(model.Ref{Kind: model.KindTaskHeader, ID: "1-1"})},
		{30, space.Key(model.Ref{Kind: model.KindTaskChunk, ID: "1-1"})},
		{31, space.Key(model.Ref{Kind: model.KindLeaseChunk, ID: "1-1"})}, // after
	} {
		countWrite(space, phases, store.Change{KV: store.KV{Key: put.key, Value: []byte("12"), Mod: put.mod}})
	}
	first, last := phases[0], phases[2]
	if len(first.Writes) != 2 || first.Writes[writesTxn] != 1 || first.Writes[writesReservation] != 1 || first.Bytes != 4 {
		t.Errorf("first %+v", first)
	}
	if len(last.Writes) != 2 || last.Writes[writesEvent] != 1 || last.Writes[writesTask] != 2 || last.Bytes != 6 {
		t.Errorf("last %+v", last)
	}
	if len(phases[1].Writes) != 0 {
		t.Errorf("an empty phase has %+v", phases[1])
	}
}
