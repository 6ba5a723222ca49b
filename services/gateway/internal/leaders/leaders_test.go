package leaders_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/model"
	"berth.dev/services/gateway/internal/leaders"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/testkit/porttest"
)

// patience is long enough for an answer even on a slow machine.
const patience = 20 * time.Second

func TestEveryReplicaIsListed(t *testing.T) {
	since := timestamppb.New(time.Unix(1e9, 0))
	replica := func(r *berthv1.Replica) string {
		return replicatest.Start(t, "", replicatest.Answers{Replica: r}).Address
	}
	unused := porttest.Hold(t)
	standby := replica(&berthv1.Replica{Id: "a", Address: "a:1", Role: berthv1.Replica_STANDBY, Revision: 90})
	// This replica was deposed but does not know that yet.
	deposed := replica(&berthv1.Replica{Id: "b", Role: berthv1.Replica_LEADER, Revision: 80, Term: 5, Since: since})
	leader := replica(&berthv1.Replica{Id: "c", Role: berthv1.Replica_LEADER, Revision: 100, Term: 7, Since: since,
		Renewed: since})
	silent := replicatest.Start(t, "", replicatest.Answers{}).Address
	other := replica(&berthv1.Replica{Id: "d", Role: berthv1.Replica_LEADER, Service: "registry", Term: 9})

	s, err := leaders.New(map[string][]string{
		model.ServiceRegistry: {standby, leader, deposed}, model.ServiceExecutorState: {unused, silent, other},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Patience = patience
	got, err := s.ListLeaders(t.Context(), &berthv1.ListLeadersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	want := &berthv1.ListLeadersAnswer{Now: got.GetNow(), Services: []*berthv1.ServiceLeadership{
		{
			Service: "registry", Leader: "c", Address: leader, Term: 7, Since: since, Renewed: since,
			Replicas: []*berthv1.Replica{
				{Id: "a", Address: "a:1", Role: berthv1.Replica_STANDBY, Revision: 90, Behind: 10},
				{Id: "c", Address: leader, Role: berthv1.Replica_LEADER, Revision: 100, Term: 7, Since: since, Renewed: since},
				{Id: "b", Address: deposed, Role: berthv1.Replica_LEADER, Revision: 80, Behind: 20, Term: 5, Since: since},
			},
		},
		{Service: "executor-state", Replicas: []*berthv1.Replica{
			{Address: unused, Role: berthv1.Replica_UNREACHABLE, Error: "connection refused"},
			{Address: silent, Role: berthv1.Replica_UNREACHABLE, Error: "it is another server"},
			{Address: other, Role: berthv1.Replica_UNREACHABLE, Service: "registry",
				Error: "it is a replica of registry, not of executor-state"},
		}},
		{Service: "assigner"},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Reach returns for each service which replicas answered and why others did not.
func TestReach(t *testing.T) {
	unused, later := porttest.Hold(t), porttest.Hold(t)
	standby := replicatest.Start(t, "", replicatest.Answers{Replica: &berthv1.Replica{Role: berthv1.Replica_STANDBY}})
	s, err := leaders.New(map[string][]string{
		model.ServiceRegistry: {unused, standby.Address}, model.ServiceAssigner: {later},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if diff := cmp.Diff(rpc.Reach{}, s.Reach(model.ServiceRegistry)); diff != "" {
		t.Errorf("before the first call: -want +got:\n%s", diff)
	}
	s.Patience = patience
	check := func(service string, want rpc.Reach) {
		t.Helper()
		s.Poll(t.Context())
		if diff := cmp.Diff(want, s.Reach(service)); diff != "" {
			t.Errorf("%s: -want +got:\n%s", service, diff)
		}
	}
	const refused = "connection refused"
	check(model.ServiceRegistry, rpc.Reach{Answered: 1, Unreached: []rpc.Unreached{{Address: unused, Cause: refused}}})
	check(model.ServiceAssigner, rpc.Reach{Unreached: []rpc.Unreached{{Address: later, Cause: refused}}})
	check(model.ServiceExecutorState, rpc.Reach{})
	replicatest.Start(t, later, replicatest.Answers{Replica: &berthv1.Replica{Role: berthv1.Replica_LEADER, Term: 3}})
	// The connection is dialed again after a pause.
	for deadline := time.Now().Add(patience); s.Reach(model.ServiceAssigner).Answered == 0; s.Poll(t.Context()) {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not answer")
		}
	}
	check(model.ServiceAssigner, rpc.Reach{Answered: 1, Leads: true})
	if last := s.Last(model.ServiceAssigner); len(last) != 1 || last[0].GetTerm() != 3 {
		t.Errorf("the last answers: %v", last)
	}
	// A call that ends early shows nothing about the replicas.
	early, cancel := context.WithCancel(t.Context())
	cancel()
	s.Poll(early)
	if got := s.Reach(model.ServiceAssigner); !got.Leads {
		t.Errorf("after a call that ended early: %v", got)
	}
}

// A replica without a view, or with the view from before a restore, is behind by no number.
func TestReplicaWithoutView(t *testing.T) {
	revisions := map[int64]*berthv1.Replica{
		0: {NoView: true}, 5000: {NoView: true}, 218_016_221_000_000: {Behind: 253}, 218_016_221_000_253: {},
	}
	var addresses []string
	for revision := range revisions {
		addresses = append(addresses, replicatest.Start(t, "", replicatest.Answers{
			Replica: &berthv1.Replica{Role: berthv1.Replica_STANDBY, Revision: revision}}).Address)
	}
	s, err := leaders.New(map[string][]string{model.ServiceRegistry: addresses}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.ListLeaders(t.Context(), &berthv1.ListLeadersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range got.GetServices()[0].GetReplicas() {
		want := revisions[r.GetRevision()]
		if r.GetNoView() != want.GetNoView() || r.GetBehind() != want.GetBehind() {
			t.Errorf("%v, want %v", r, want)
		}
	}
}

// The gateway sends the request to resign only to the leader of the given term.
func TestResign(t *testing.T) {
	var asked []int64
	var answer error
	nobody := porttest.Hold(t)
	start := func(r *berthv1.Replica) string {
		return replicatest.Start(t, "", replicatest.Answers{Replica: r, Resign: func(term int64) error {
			asked = append(asked, term)
			return answer
		}}).Address
	}
	s, err := leaders.New(map[string][]string{
		model.ServiceRegistry: {
			start(&berthv1.Replica{Id: "a", Role: berthv1.Replica_STANDBY, Term: 9}),
			start(&berthv1.Replica{Id: "b", Role: berthv1.Replica_LEADER, Term: 5}), // deposed, but not aware of that yet
			start(&berthv1.Replica{Id: "c", Role: berthv1.Replica_LEADER, Term: 7}),
		},
		model.ServiceAssigner: {nobody},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Patience = patience
	notLeader := fault.New(fault.Precondition, fault.ReasonNotLeader, "not the leader")
	broken := fault.New(fault.Unavailable, fault.ReasonUnavailable, "no answer in time")
	for _, c := range []struct {
		name, service string
		term          int64
		answer        error
		asked         []int64
		want          *berthv1.ResignAnswer
		field         string
		message       string
		kind          fault.Kind
	}{
		{name: "the present term", service: "registry", asked: []int64{7},
			want: &berthv1.ResignAnswer{Service: "registry", Replica: "c", Term: 7}},
		{name: "this term", service: "registry", term: 7, asked: []int64{7},
			want: &berthv1.ResignAnswer{Service: "registry", Replica: "c", Term: 7}},
		{name: "a term that is over", service: "registry", term: 5,
			want: &berthv1.ResignAnswer{Service: "registry", Term: 5}},
		{name: "a term that ends meanwhile", service: "registry", answer: notLeader, asked: []int64{7},
			want: &berthv1.ResignAnswer{Service: "registry", Term: 7}},
		{name: "a leader that does not answer", service: "registry", answer: broken, asked: []int64{7},
			kind: fault.Unavailable},
		{name: "a future term", service: "registry", term: 8, kind: fault.Invalid, field: "term"},
		{name: "a negative term", service: "registry", term: -1, kind: fault.Invalid, field: "term"},
		{name: "no leader", service: "assigner", kind: fault.Unavailable,
			message: "no replica of assigner answers: " + nobody + " (connection refused)"},
		{name: "no such service", service: "queue", kind: fault.Invalid, field: "service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, answer = nil, c.answer
			got, err := s.Resign(t.Context(), &berthv1.ResignRequest{Service: c.service, Term: c.term})
			if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if (err == nil) != (c.want != nil) {
				t.Errorf("error %v", err)
			}
			if f := rpc.FromStatus(err); err != nil && (f.Kind != c.kind || c.field != "" && f.Fields[0].Name != c.field ||
				c.message != "" && f.Message != c.message) {
				t.Errorf("error %v", err)
			}
			if !slices.Equal(asked, c.asked) {
				t.Errorf("requests: %v", asked)
			}
		})
	}
}

func TestBadAddressesAreRejected(t *testing.T) {
	if _, err := leaders.New(map[string][]string{model.ServiceRegistry: {"127.0.0.1:1", "nowhere"}}, nil); err == nil {
		t.Error("no error")
	}
}
