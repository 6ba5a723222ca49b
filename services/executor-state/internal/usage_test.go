package internal

import (
	"testing"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/store"
)

func TestSkus(t *testing.T) {
	catalog := NewCatalog(start(t, store.NewFake(store.FakeConfig{})))
	most := int32(9)
	put, err := catalog.PutSku(t.Context(), &berthv1.PutSkuRequest{Sku: &berthv1.Sku{
		Name: "small", Resources: map[string]int64{"cpu": 4000}, Scale: &berthv1.ScaleRule{MinIdle: 2, MaxSize: &most},
	}})
	if err != nil || put.GetResources()["slots"] != 1 || put.GetUpdatedAt() == nil {
		t.Fatal(put, err)
	}
	got, err := catalog.GetSku(t.Context(), &berthv1.GetSkuRequest{Name: "SMALL"})
	if err != nil || got.GetName() != "small" || got.GetScale().GetMinIdle() != 2 || got.GetScale().GetMaxSize() != 9 ||
		got.GetScale().MaxIdle != nil {
		t.Fatal(got, err)
	}
	list, err := catalog.ListSkus(t.Context(), &berthv1.ListSkusRequest{})
	if err != nil || len(list.GetSkus()) != 1 {
		t.Fatal(list, err)
	}
	if _, err := catalog.PutSku(t.Context(),
		&berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: "x"}}); fault.Of(err).Fields[0].Name != "resources" {
		t.Fatal(err)
	}
	for _, unknown := range []bool{false, true} {
		answer, err := catalog.DeleteSku(t.Context(), &berthv1.DeleteSkuRequest{Name: "small"})
		if err != nil || answer.GetUnknown() != unknown {
			t.Fatalf("%v, %v, want unknown: %v", answer, err, unknown)
		}
	}
	if _, err := catalog.GetSku(t.Context(), &berthv1.GetSkuRequest{Name: "small"}); fault.Of(err).Kind != fault.NotFound {
		t.Fatal(err)
	}
}

func TestUsageIsRefusedUntilReady(t *testing.T) {
	usage := NewUsage(start(t, store.NewFake(store.FakeConfig{})))
	if _, err := usage.GetUsage(t.Context(),
		&berthv1.GetUsageRequest{}); fault.Of(err).Reason != fault.ReasonRegistryNotReady {
		t.Fatal(err)
	}
}

func TestIdleExecutorsAndExplanations(t *testing.T) {
	s := store.NewFake(store.FakeConfig{})
	l := start(t, s)
	agents := NewAgents(l, "default")
	answer, err := agents.Register(t.Context(), &controlv1.RegisterRequest{
		Id: "a", Address: "127.0.0.1:1", Sku: "small", Nonce: "n", Resources: map[string]int64{"cpu": 4000, "slots": 4},
		Reserved: map[string]*berthv1.ResourceShare{"web": {Resources: map[string]int64{"cpu": 3000}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := s.Grant(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agents.Announce(t.Context(), &controlv1.AnnounceRequest{Id: "a", Incarnation: answer.GetIncarnation(),
		EtcdLease: lease.ID}); err != nil {
		t.Fatal(err)
	}
	executors := NewExecutors(l)
	idle, err := executors.ListIdleExecutors(t.Context(), &berthv1.ListIdleExecutorsRequest{Sku: "Small"})
	if err != nil || len(idle.GetExecutors()) != 1 || idle.GetExecutors()[0].GetReason() != "NO_DEMAND" ||
		idle.GetExecutors()[0].GetSince() == nil {
		t.Fatal(idle, err)
	}
	for _, most := range []int32{-1, 1001} {
		if _, err := executors.ListIdleExecutors(t.Context(),
			&berthv1.ListIdleExecutorsRequest{Max: most}); fault.Of(err).Fields[0].Name != "max" {
			t.Errorf("max %d: %v", most, err)
		}
	}
	fit, err := NewInventory(l).ExplainFit(t.Context(), &controlv1.ExplainFitRequest{
		Constraints: &berthv1.Constraints{Resources: map[string]int64{"cpu": 2000}}, Needed: 2,
	})
	if err != nil || fit.GetFitting() != 0 || len(fit.GetChecks()) != 1 || fit.GetChecks()[0].GetCheck() != "role" ||
		fit.GetChecks()[0].GetCount() != 1 {
		t.Fatal(fit, err)
	}
	if _, err := NewInventory(l).ExplainFit(t.Context(),
		&controlv1.ExplainFitRequest{}); fault.Of(err).Fields[0].Name != "needed" {
		t.Fatal(err)
	}
}
