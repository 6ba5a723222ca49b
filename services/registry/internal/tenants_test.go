package internal

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The limits of tenants apply to the next call after they change, and the list has the
// limits and their use.
func TestTenantsLimitUpserts(t *testing.T) {
	var tenants *model.Tenants
	now := func() *model.Tenants { return tenants }
	s := start(t)
	s.tenants = now
	list := func() []*berthv1.Tenant {
		t.Helper()
		answer, err := NewTenants(s.loop, now).ListTenants(t.Context(), &berthv1.ListTenantsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetTenants()
	}
	upsertJob := func(job string) error {
		_, err := s.UpsertReservation(t.Context(), upsert(job, "s", ""))
		return err
	}
	if err := upsertJob("train-1"); err != nil {
		t.Fatal(err)
	}
	if got := list(); len(got) != 0 {
		t.Errorf("%v without tenants", got)
	}
	tenants = model.NewTenants([]model.Tenant{
		{Name: "train", Prefix: "train", Limits: model.TenantLimits{
			QueuedReservations: 2, Workers: 100, Batch: 50, StoredBytes: 1 << 20, EventStreams: 3, RequestsPerSecond: 0.5,
			HighestPriority: model.ClassScale, SKUs: []string{"small"}, Pools: []string{"night"},
		}},
		{Name: "eval", Prefix: "eval-"},
	})
	use := func(queued, workers int32) *berthv1.TenantUse {
		return &berthv1.TenantUse{QueuedReservations: queued, Workers: workers}
	}
	want := []*berthv1.Tenant{
		{Name: "eval", Prefix: "eval-", Limits: &berthv1.TenantLimits{}, Use: use(0, 0)},
		{Name: "train", Prefix: "train", Limits: &berthv1.TenantLimits{
			QueuedReservations: 2, Workers: 100, Batch: 50, StoredBytes: 1 << 20, EventStreams: 3, RequestsPerSecond: 0.5,
			HighestPriority: berthv1.PriorityClass_SCALE, Skus: []string{"small"}, Pools: []string{"night"},
		}, Use: use(1, 3)},
	}
	got := list()
	if bytes := got[1].GetUse().GetStoredBytes(); bytes < 500 || bytes > 5000 {
		t.Errorf("the records take %d bytes", bytes)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform(),
		protocmp.IgnoreFields(&berthv1.TenantUse{}, "stored_bytes")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if f := fault.Of(upsertJob("train-2")); f == nil || f.Reason != fault.ReasonTenantLimit ||
		f.Kind != fault.Exhausted || f.Meta["limit"] != "skus" {
		t.Errorf("got %v", f)
	}
	if n := s.refused.all()[fault.ReasonTenantLimit]; n != 1 {
		t.Errorf("%d refusals are counted", n)
	}
	tenants = nil
	if err := upsertJob("train-2"); err != nil {
		t.Error(err)
	}
}
