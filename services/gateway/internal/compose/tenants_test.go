package compose_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/services/gateway/internal/compose"
)

func TestTenantsWithTheStreamsOfTheGateway(t *testing.T) {
	listed := &berthv1.ListTenantsAnswer{Tenants: []*berthv1.Tenant{
		{Name: "eval"}, {Name: "train", Use: &berthv1.TenantUse{Workers: 7}},
	}}
	streams := func() map[string]int { return map[string]int{"train": 3, "other": 1} }
	got, err := compose.New(serve(map[string]any{"ListTenants": listed}), streams, nil).ListTenants(t.Context(),
		&berthv1.ListTenantsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &berthv1.ListTenantsAnswer{Tenants: []*berthv1.Tenant{
		{Name: "eval", Use: &berthv1.TenantUse{}}, {Name: "train", Use: &berthv1.TenantUse{Workers: 7, EventStreams: 3}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	failed := errors.New("failed")
	if _, err := compose.New(serve(map[string]any{"ListTenants": failed}), streams, nil).ListTenants(t.Context(),
		&berthv1.ListTenantsRequest{}); !errors.Is(err, failed) {
		t.Errorf("got %v", err)
	}
}
