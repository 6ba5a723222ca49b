package internal

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/executor-state/inventory"
)

// ready registers an executor, writes its presence to the store, and returns the etcd
// lease.
func ready(t *testing.T, s store.Store, agents *Agents, id string) int64 {
	t.Helper()
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	incarnation := register(t, agents, id, "n").GetIncarnation()
	if _, err := agents.Announce(t.Context(), &controlv1.AnnounceRequest{Id: id, Incarnation: incarnation,
		EtcdLease: lease.ID}); err != nil {
		t.Fatal(err)
	}
	return lease.ID
}

func TestDisableDrainClaim(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents, executors := NewAgents(l, "default"), NewExecutors(l)
	for _, id := range []string{"a", "b", "c"} {
		ready(t, s, agents, id)
	}
	ctx := t.Context()
	expire := timestamppb.New(time.Now().Add(time.Hour))

	disabled, err := executors.DisableExecutors(ctx, &berthv1.DisableExecutorsRequest{
		RequestId: "d", Selector: &berthv1.ExecutorSelector{Ids: []string{"a", "z"}}, ExpireTime: expire, Reason: "repair",
	})
	if err != nil || disabled.GetExecutors() != 1 || disabled.GetRequestId() != "d" {
		t.Fatal(disabled, err)
	}
	got, err := executors.GetExecutor(ctx, &berthv1.GetExecutorRequest{Id: "a"})
	if err != nil || len(got.GetDisabled()) != 1 || got.GetDraining() {
		t.Fatal(got, err)
	}
	if mark := got.GetDisabled()[0]; mark.GetRequestId() != "d" || mark.GetReason() != "repair" ||
		!mark.GetExpireTime().AsTime().Equal(expire.AsTime()) {
		t.Errorf("marked %v", mark)
	}

	drained, err := executors.DrainExecutor(ctx, &berthv1.DrainExecutorRequest{Id: "b"})
	if err != nil || !drained.GetDraining() || len(drained.GetDisabled()) != 1 ||
		drained.GetDisabled()[0].GetRequestId() == "" {
		t.Fatal(drained, err)
	}

	claim := &berthv1.ClaimForScaleDownRequest{RequestId: "c", Sku: "small", Max: 5}
	for range 2 {
		claimed, err := executors.ClaimForScaleDown(ctx, claim)
		if err != nil || len(claimed.GetExecutors()) != 1 {
			t.Fatal(claimed, err)
		}
		if e := claimed.GetExecutors()[0]; e.GetId() != "c" || e.GetReason() != "CLAIMED" || e.GetSku() != "small" ||
			e.GetSince() == nil {
			t.Errorf("claimed %v", e)
		}
	}

	enabled, err := executors.EnableExecutors(ctx,
		&berthv1.EnableExecutorsRequest{Selector: &berthv1.ExecutorSelector{Ids: []string{"a", "b", "c"}}})
	if err != nil || enabled.GetUndone() != 3 || enabled.GetRequestId() == "" {
		t.Fatal(enabled, err)
	}
	// A call without a request ID gets one. The caller can repeat and undo the call with that
	// ID.
	made, err := executors.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{Sku: "small", Max: 1})
	if err != nil || made.GetRequestId() == "" {
		t.Fatal(made, err)
	}
	if again, err := executors.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{RequestId: made.GetRequestId(),
		Sku: "small", Max: 1}); err != nil || !proto.Equal(again, made) {
		t.Errorf("%v, want %v: %v", again, made, err)
	}
	if undone, err := executors.EnableExecutors(ctx,
		&berthv1.EnableExecutorsRequest{DisableRequestId: made.GetRequestId()}); err != nil || undone.GetUndone() != 1 {
		t.Errorf("%v, %v", undone, err)
	}
	list, err := executors.ListExecutors(ctx, &berthv1.ListExecutorsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.GetExecutors() {
		if len(e.GetDisabled()) != 0 || e.GetDraining() {
			t.Errorf("still %v", e)
		}
	}

	never := &timestamppb.Timestamp{Seconds: 1 << 50}
	for name, call := range map[string]func() error{
		"disable at no time": func() error {
			_, err := executors.DisableExecutors(ctx,
				&berthv1.DisableExecutorsRequest{Selector: &berthv1.ExecutorSelector{Ids: []string{"a"}}, ExpireTime: never})
			return err
		},
		"disable nobody": func() error {
			_, err := executors.DisableExecutors(ctx, &berthv1.DisableExecutorsRequest{})
			return err
		},
		"enable nobody": func() error {
			_, err := executors.EnableExecutors(ctx, &berthv1.EnableExecutorsRequest{})
			return err
		},
		"drain nobody": func() error {
			_, err := executors.DrainExecutor(ctx, &berthv1.DrainExecutorRequest{})
			return err
		},
		"drain at no time": func() error {
			_, err := executors.DrainExecutor(ctx, &berthv1.DrainExecutorRequest{Id: "a", ExpireTime: never})
			return err
		},
		"claim at no time": func() error {
			_, err := executors.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{Sku: "small", Max: 1,
				ExpireTime: never})
			return err
		},
		"claim of nothing": func() error {
			_, err := executors.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{})
			return err
		},
	} {
		if f := fault.Of(call()); f == nil || f.Kind != fault.Invalid || len(f.Fields) == 0 {
			t.Errorf("%s: %v", name, f)
		}
	}
}

func TestPools(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents, executors, catalog := NewAgents(l, "default"), NewExecutors(l), NewCatalog(l)
	ready(t, s, agents, "a")
	ctx := t.Context()

	put, err := catalog.PutPool(ctx, &berthv1.PutPoolRequest{Pool: &berthv1.Pool{Name: "night",
		LostAfter: durationpb.New(0)}})
	if err != nil || put.GetAttributes()["pool"] != "night" || put.GetLostAfter() == nil || put.GetUpdatedAt() == nil {
		t.Fatal(put, err)
	}
	if got, err := catalog.GetPool(ctx, &berthv1.GetPoolRequest{Name: "NIGHT"}); err != nil || got.GetName() != "night" {
		t.Fatal(got, err)
	}
	if _, err := catalog.PutPool(ctx, &berthv1.PutPoolRequest{Pool: &berthv1.Pool{Name: "day",
		Attributes: map[string]string{"sun": "up"}}}); err != nil {
		t.Fatal(err)
	}
	list, err := catalog.ListPools(ctx, &berthv1.ListPoolsRequest{})
	if err != nil || len(list.GetPools()) != 2 || list.GetPools()[0].GetName() != "day" {
		t.Fatal(list, err)
	}
	// The executor registers again with attributes that match both pools.
	if _, err := agents.Register(ctx, &controlv1.RegisterRequest{
		Id: "a", Address: "127.0.0.1:1", Nonce: "n2", Attributes: map[string]string{"Sun": "Up", "pool": "night"},
	}); err != nil {
		t.Fatal(err)
	}
	for _, pool := range []string{"night", "Day"} {
		found, err := executors.ListExecutors(ctx, &berthv1.ListExecutorsRequest{Pool: pool})
		if err != nil || len(found.GetExecutors()) != 1 || found.GetExecutors()[0].GetPool() != "day" {
			t.Errorf("in %s: %v, %v", pool, found, err)
		}
	}
	for _, unknown := range []bool{false, true} {
		answer, err := catalog.DeletePool(ctx, &berthv1.DeletePoolRequest{Name: "day"})
		if err != nil || answer.GetUnknown() != unknown {
			t.Fatalf("%v, %v, want unknown: %v", answer, err, unknown)
		}
	}
	if _, err := catalog.GetPool(ctx, &berthv1.GetPoolRequest{Name: "day"}); !fault.Is(err, fault.ReasonNotFound) {
		t.Errorf("deleted: %v", err)
	}
	for name, pool := range map[string]*berthv1.Pool{
		"nothing":     nil,
		"bad name":    {Name: "-"},
		"no duration": {Name: "x", LostAfter: &durationpb.Duration{Seconds: 1, Nanos: -1}},
		"before":      {Name: "x", LostAfter: durationpb.New(-1)},
	} {
		_, err := catalog.PutPool(ctx, &berthv1.PutPoolRequest{Pool: pool})
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInventoryFindings(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents, inventory := NewAgents(l, "default"), NewInventory(l)
	var leases []int64
	for _, id := range []string{"a", "b", "c"} {
		leases = append(leases, ready(t, s, agents, id))
	}
	found := func() []*berthv1.Finding {
		answer, err := inventory.InventoryFindings(t.Context(), &berthv1.ListFindingsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetFindings()
	}
	if list := found(); len(list) != 0 {
		t.Fatal(list)
	}
	for _, lease := range leases {
		if err := s.Revoke(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
	}
	for { // until the view shows the change; the time limit of the test ends the loop
		list := found()
		if len(list) == 0 {
			continue
		}
		if f := list[0]; f.GetKind() != "MASS_LOSS" || f.GetObject() != "executors" || f.GetSince() == nil ||
			f.GetMessage() == "" || f.GetAction() == "" || f.GetService() != "executor-state" {
			t.Errorf("found %v", f)
		}
		return
	}
}

// In a copied fleet, many agents are rejected because their secrets differ. Their findings
// hide no other finding.
func TestDuplicateAgentsHideNoOtherFinding(t *testing.T) {
	const refused = 300
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents := NewAgents(l, "default")
	as := func(id, secret string) error {
		_, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
			Id: id, Address: "127.0.0.1:1", Nonce: secret, Secret: secret, Resources: map[string]int64{"slots": 4},
		})
		return err
	}
	var together sync.WaitGroup
	for i := range refused {
		together.Go(func() {
			id := fmt.Sprintf("e%d", i)
			if err := as(id, "own"); err != nil {
				t.Error(err)
			}
			if err := as(id, "another"); !fault.Is(err, fault.ReasonOtherAgent) {
				t.Errorf("%s: an agent with another secret: %v", id, err)
			}
		})
	}
	together.Wait()
	for _, id := range []string{"a", "b", "c"} {
		if err := s.Revoke(t.Context(), ready(t, s, agents, id)); err != nil {
			t.Fatal(err)
		}
	}
	for { // until the view shows that the executor is lost; the time limit of the test ends the loop
		answer, err := NewInventory(l).InventoryFindings(t.Context(), &berthv1.ListFindingsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		list := answer.GetFindings()
		if list[0].GetKind() != inventory.FindingMassLoss {
			continue
		}
		last := list[len(list)-1]
		if want := fmt.Sprintf("%d more of this kind",
			refused+2-len(list)); last.GetKind() != inventory.FindingDuplicateAgent ||
			last.GetObject() != model.OtherFindings || last.GetMessage() != want {
			t.Errorf("%d findings, the last is %v", len(list), last)
		}
		return
	}
}
