package loop_test

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// poisonRequest is a request like those of the services. It has a content, and an ID that
// differs in each attempt.
type poisonRequest struct {
	Content   string
	RequestID string
}

// onRequest returns a core that panics at a request with the given content.
func onRequest(content string) func() *toy {
	return withStrike(func(_ *toy, event model.Event) {
		in, _ := event.(model.Input)
		if w, ok := in.Request.(poisonRequest); ok && w.Content == content {
			panic("the request " + content)
		}
	})
}

func withStrike(strike func(*toy, model.Event)) func() *toy {
	return func() *toy {
		c := newToy()
		c.strike = strike
		return c
	}
}

// onGate returns a core that panics when it receives a change of the gate, either only
// while it leads or only while it does not.
func onGate(name string, leads bool) func() *toy {
	return withStrike(func(c *toy, event model.Event) {
		if changed, ok := event.(model.Changed); ok && changed.Ref == gate(name) && (c.term != 0) == leads {
			panic("the gate " + name)
		}
	})
}

// received returns the events that the serving core has received.
func received(t *testing.T, r *replica) []string {
	t.Helper()
	var received []string
	eventually(t, func() bool {
		return r.Read(t.Context(), false, func(c *toy) { received = slices.Clone(c.received) }) == nil
	})
	return received
}

// eventually waits in simulated time until the condition holds.
func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for range 1000 {
		if holds() {
			return
		}
		time.Sleep(50 * time.Millisecond) // simulated time
	}
	t.Fatal("condition not met in time")
}

// poison returns the stored poison records, sorted by key.
func poison(t *testing.T, s store.Store) []*model.Poison {
	t.Helper()
	kvs, _, err := store.Range(t.Context(), s, space.Prefix()+service+"/poison/")
	if err != nil {
		t.Fatal(err)
	}
	var list []*model.Poison
	for _, kv := range kvs {
		ref, _ := space.Parse(kv.Key)
		record, err := wire.Decode(ref, kv.Value, kv.Create, kv.Mod, 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, record.(*model.Poison))
	}
	return list
}

func deletePoison(t *testing.T, s store.Store) {
	t.Helper()
	for _, p := range poison(t, s) {
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete(space.Key(p.Ref()))}}); err != nil {
			t.Fatal(err)
		}
	}
}

// putGate writes a gate as another service would. If value is nil, the record is valid.
func putGate(t *testing.T, s store.Store, name string, value []byte) {
	t.Helper()
	if value == nil {
		var err error
		if value, err = wire.Encode(&model.TaskHeader{UID: name}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(space.Key(gate(name)), value)}}); err != nil {
		t.Fatal(err)
	}
}

func wantQuarantined(t *testing.T, r *replica, objects ...string) {
	t.Helper()
	eventually(t, func() bool {
		var have []string
		for _, a := range r.Status().Quarantined {
			have = append(have, a.Object)
		}
		return slices.Equal(have, objects)
	})
}

// If a request makes the core panic, the caller gets an error, and the request is stored.
// No replica executes it again, and other requests are served.
func TestPoisonRequestIsRefusedByEveryReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := runAs(t, s, "a", "v1", onRequest("bad"), nil)
		a.awaitLead(t, true)
		b := runAs(t, s, "b", "v1", onRequest("bad"), nil)
		_, err := a.Do(t.Context(), poisonRequest{"bad", "1"})
		if !fault.Is(err, fault.ReasonPoison) {
			t.Fatalf("answered %v", err)
		}
		a.awaitLead(t, false)
		kept := poison(t, s)
		if len(kept) != 1 || kept[0].Kind != model.PoisonRequest || kept[0].Request != "loop_test.poisonRequest" ||
			!strings.Contains(kept[0].Content, "bad") || kept[0].Panic != "the request bad" ||
			!strings.Contains(kept[0].Stack, "onRequest") ||
			kept[0].Replica != "a" || kept[0].Version != "v1" || kept[0].At.IsZero() {
			t.Fatalf("kept %+v", kept)
		}
		leader, term := a, int64(0)
		eventually(t, func() bool {
			for _, r := range []*replica{a, b} {
				if status := r.Status(); status.Serving {
					leader, term = r, status.Term
				}
			}
			return term != 0
		})
		wantQuarantined(t, leader, "loop_test.poisonRequest")
		if _, err := leader.Do(t.Context(), poisonRequest{"bad", "2"}); !fault.Is(err, fault.ReasonPoison) {
			t.Errorf("the same with another id is answered %v", err)
		}
		if _, err := leader.Do(t.Context(), put{record: executor("x")}); err != nil {
			t.Errorf("another request is answered %v", err)
		}
		if status := leader.Status(); status.Term != term || !status.Serving {
			t.Errorf("the leader has changed: %+v", status)
		}
		if findings := leader.Status().Findings(service); len(findings) != 1 || findings[0].GetKind() != loop.FindingPoison ||
			findings[0].GetService() != service || !strings.Contains(findings[0].GetAction(), space.Key(kept[0].Ref())) {
			t.Errorf("findings %v", findings)
		}

		// After an operator has deleted the poison record, the request is tried again.
		deletePoison(t, s)
		wantQuarantined(t, leader)
		if _, err := leader.Do(t.Context(), poisonRequest{"bad", "3"}); !fault.Is(err, fault.ReasonPoison) ||
			len(poison(t, s)) != 1 {
			t.Errorf("after the quarantine was cleared: %v", err)
		}
	})
}

// If a record made a leader panic, the next leader quarantines the record until it changes.
func TestPoisonRecordIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		core := onGate("g", true)
		a := runAs(t, s, "a", "v1", core, nil)
		a.awaitLead(t, true)
		putGate(t, s, "g", nil)
		a.awaitLead(t, false)
		a.awaitLead(t, true)
		if received := received(t, a); !slices.Contains(received, "held gate g") ||
			slices.Contains(received, "changed gate g") {
			t.Errorf("the core got %q", received)
		}
		if kept := poison(t, s); len(kept) != 1 || kept[0].Kind != model.PoisonRecord ||
			kept[0].Key != space.Key(gate("g")) || kept[0].Mod == 0 {
			t.Fatalf("kept %+v", kept)
		}
		wantQuarantined(t, a, "assigner/tasks/g")

		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete(space.Key(gate("g")))}}); err != nil {
			t.Fatal(err)
		}
		wantQuarantined(t, a)
		eventually(t, func() bool { return len(poison(t, s)) == 0 })
		if _, err := a.Do(t.Context(), put{record: executor("x")}); err != nil {
			t.Error(err)
		}
	})
}

// If a standby panics, it quarantines the record in memory. When it becomes the leader, it
// stores the quarantine, so that the other replicas know about it.
func TestStandbyKeepsItsQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		b := runAs(t, s, "b", "v1", onGate("g", false), nil)
		eventually(t, func() bool { return b.Status().Current })
		putGate(t, s, "g", nil)
		wantQuarantined(t, b, "assigner/tasks/g")
		if len(poison(t, s)) != 0 || !a.Status().Serving {
			t.Error("a standby wrote, or the leader was disturbed")
		}
		a.end()
		b.awaitLead(t, true)
		if received := received(t, b); !slices.Contains(received, "held gate g") {
			t.Errorf("the core got %q", received)
		}
		if kept := poison(t, s); len(kept) != 1 || kept[0].Replica != "b" {
			t.Errorf("kept %+v", kept)
		}
		wantQuarantined(t, b, "assigner/tasks/g")
	})
}

// If the core panics without an input, the driver quarantines the object of the core's
// decision.
func TestPoisonWorkQuarantinesItsSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		held := func(c *toy) bool { return slices.Contains(c.received, "held gate g") }
		a := runAs(t, s, "a", "v1", withStrike(func(c *toy, event model.Event) {
			if _, closes := event.(model.Progress); closes && c.term != 0 && c.records[gate("g")] != nil && !held(c) {
				c.subject = gate("g")
				panic("about g")
			}
		}), nil)
		a.awaitLead(t, true)
		putGate(t, s, "g", nil)
		a.awaitLead(t, false)
		a.awaitLead(t, true)
		if received := received(t, a); !slices.Contains(received, "held gate g") ||
			!slices.Contains(received, "changed gate g") {
			t.Errorf("the core got %q, want the record both quarantined and changed", received)
		}
		if kept := poison(t, s); len(kept) != 1 || kept[0].Kind != model.PoisonWork {
			t.Errorf("kept %+v", kept)
		}
		wantQuarantined(t, a, "assigner/tasks/g")
	})
}

// Another version of the program tries the record again and deletes the quarantine of the
// first version.
func TestAnotherVersionTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := runAs(t, s, "a", "v1", onGate("g", true), nil)
		a.awaitLead(t, true)
		putGate(t, s, "g", nil)
		wantQuarantined(t, a, "assigner/tasks/g")
		eventually(t, func() bool { return a.Status().Serving })
		a.end()
		b := runAs(t, s, "b", "v2", newToy, nil)
		b.awaitLead(t, true)
		if received := received(t, b); !slices.Contains(received, "changed gate g") ||
			slices.Contains(received, "held gate g") {
			t.Errorf("the core got %q", received)
		}
		wantQuarantined(t, b)
		if kept := poison(t, s); len(kept) != 0 {
			t.Errorf("kept %+v", kept)
		}
	})
}

// If a record cannot be read, it is quarantined until it can be read.
func TestUnreadableRecordIsQuarantined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		b := run(t, s, "b", nil)
		putGate(t, s, "g", []byte("\xff"))
		wantQuarantined(t, a, "assigner/tasks/g")
		wantQuarantined(t, b, "assigner/tasks/g")
		eventually(t, func() bool { return a.Status().Serving || b.Status().Serving })
		if kept := poison(t, s); len(kept) != 0 {
			t.Errorf("got %+v, want no poison record for an unreadable record", kept)
		}
		putGate(t, s, "g", nil)
		wantQuarantined(t, a)
		wantQuarantined(t, b)
		eventually(t, func() bool { return a.Status().Serving || b.Status().Serving })
	})
}

// An unreadable record is listed once, even if another unreadable version replaces it. The
// replacement does not end the term.
func TestUnreadableRecordIsShownOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		putGate(t, s, "g", []byte("\xff"))
		wantQuarantined(t, a, "assigner/tasks/g")
		eventually(t, func() bool { return a.Status().Serving })
		term := a.Status().Term
		putGate(t, s, "g", []byte("\xff\xff"))
		putGate(t, s, "h", nil)
		eventually(t, func() bool { return slices.Contains(received(t, a), "changed gate h") })
		wantQuarantined(t, a, "assigner/tasks/g")
		if now := a.Status(); !now.Serving || now.Term != term {
			t.Errorf("term %d has ended: %+v", term, now)
		}
		putGate(t, s, "g", nil)
		wantQuarantined(t, a)
	})
}

// If another program writes a chain record, even an empty one, that costs only one term.
func TestAnEmptyChainCostsOneTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		for i, value := range [][]byte{nil, []byte("\xff"), {}} {
			key := space.Key(model.Ref{Kind: model.KindChain, ID: service})
			if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(key, value)}}); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				_, err := a.Do(t.Context(), put{record: executor("x" + strconv.Itoa(i))})
				return err == nil
			})
		}
	})
}

// If very many records cannot be read, some are listed by name and the others are counted.
func TestManyUnreadableRecordsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		for i := range 600 {
			putGate(t, s, "g"+strconv.Itoa(i), []byte("\xff"))
		}
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		list := a.Status().Quarantined
		if n := len(list); n != 501 || !strings.HasPrefix(list[n-1].Message, "100 more") {
			t.Errorf("%d are shown, the last is %+v", n, list[n-1])
		}
	})
}

// A service does not serve while a record that it needs cannot be read.
func TestNeededRecordKeepsTheServiceDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		key := space.Key(executor("x").Ref())
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put(key, []byte("\xff"))}}); err != nil {
			t.Fatal(err)
		}
		a.awaitLead(t, false)
		time.Sleep(time.Minute) // simulated time
		if a.Status().Serving {
			t.Error("it serves")
		}
		if _, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Delete(key)}}); err != nil {
			t.Fatal(err)
		}
		a.awaitLead(t, true)
	})
}

// If the core panics and has no subject, only the term ends.
func TestPanicWithoutASubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		struck := false
		a := runAs(t, s, "a", "v1", withStrike(func(c *toy, event model.Event) {
			if _, committed := event.(model.Committed); committed && !struck {
				struck = true
				panic("out of the blue")
			}
		}), nil)
		a.awaitLead(t, true)
		if _, err := a.Do(t.Context(), put{record: executor("x")}); !fault.Is(err, fault.ReasonUnavailable) {
			t.Errorf("got %v, although the write may be applied", err)
		}
		a.awaitLead(t, false)
		a.awaitLead(t, true)
		if kept := poison(t, s); len(kept) != 0 {
			t.Errorf("kept %+v", kept)
		}
	})
}

// If a read panics, no other request is affected.
func TestReadThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newStore()
		a := run(t, s, "a", nil)
		a.awaitLead(t, true)
		if err := a.Read(t.Context(), false, func(*toy) { panic("no") }); !fault.Is(err, fault.ReasonInternal) {
			t.Errorf("answered %v", err)
		}
		if !a.Status().Serving {
			t.Error("the term has ended")
		}
	})
}

// If the program panics at every input, it is broken, and its process ends.
func TestTooMuchPoisonEndsTheProcess(t *testing.T) {
	r := newRig(t)
	met := map[string]*model.Poison{}
	for i := range 100 {
		id := strconv.Itoa(i)
		met[id] = &model.Poison{Service: service, ID: id, Kind: model.PoisonRequest}
	}
	r.driver.Guard(loop.Guard{Replica: "a", Version: "v1", Unstored: met})
	r.core.strike = func(*toy, model.Event) { panic("again") }
	defer func() {
		if what := recover(); what == nil || !strings.Contains(what.(string), "again") {
			t.Errorf("recovered %v", what)
		}
	}()
	_, _ = r.driver.Round(context.Background(), []model.Event{model.Input{Token: 1, Request: poisonRequest{}}})
	t.Error("the panic was recovered")
}
