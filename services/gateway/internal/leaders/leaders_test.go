package leaders_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/port/porttest"
	"berth.dev/services/gateway/internal/leaders"
	"berth.dev/services/gateway/internal/replicatest"
)

func TestEveryReplicaIsListedWithItsRoleAndHowFarBehindItIs(t *testing.T) {
	since := timestamppb.New(time.Unix(1e9, 0))
	replica := func(r *berthv1.Replica) string {
		return replicatest.Start(t, "", replicatest.Answers{Replica: r}).Address
	}
	gone := porttest.Hold(t)
	standby := replica(&berthv1.Replica{Id: "a", Address: "a:1", Role: berthv1.Replica_STANDBY, Revision: 90})
	// Deposed, and not yet aware of it.
	deposed := replica(&berthv1.Replica{Id: "b", Role: berthv1.Replica_LEADER, Revision: 80, Term: 5, Since: since})
	leader := replica(&berthv1.Replica{Id: "c", Role: berthv1.Replica_LEADER, Revision: 100, Term: 7, Since: since, Renewed: since})
	silent := replicatest.Start(t, "", replicatest.Answers{}).Address

	s, err := leaders.New(map[string][]string{
		model.ServiceRegistry: {standby, leader, deposed}, model.ServiceExecutorState: {gone, silent},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.ListLeaders(t.Context(), &berthv1.ListLeadersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &berthv1.ListLeadersAnswer{Services: []*berthv1.ServiceLeadership{
		{
			Service: "registry", Leader: "c", Address: leader, Term: 7, Since: since, Renewed: since,
			Replicas: []*berthv1.Replica{
				{Id: "a", Address: "a:1", Role: berthv1.Replica_STANDBY, Revision: 90, Behind: 10},
				{Id: "c", Address: leader, Role: berthv1.Replica_LEADER, Revision: 100, Term: 7, Since: since, Renewed: since},
				{Id: "b", Address: deposed, Role: berthv1.Replica_LEADER, Revision: 80, Behind: 20, Term: 5, Since: since},
			},
		},
		{Service: "executor-state", Replicas: []*berthv1.Replica{
			{Address: gone, Role: berthv1.Replica_UNREACHABLE},
			{Address: silent, Role: berthv1.Replica_UNREACHABLE},
		}},
		{Service: "assigner"},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestBadAddressesAreRefused(t *testing.T) {
	if _, err := leaders.New(map[string][]string{model.ServiceRegistry: {"127.0.0.1:1", "nowhere"}}, nil); err == nil {
		t.Error("no error")
	}
}
