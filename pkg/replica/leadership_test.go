package replica

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth.dev/pkg/leader"
	"berth.dev/pkg/loop"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// A replica reports the leader that etcd has at that time, and its own status.
func TestLeadershipReport(t *testing.T) {
	f := store.NewFake(store.FakeConfig{})
	report := func(status loop.Status) process.Leadership {
		return leadership(t.Context(), f, "leader", func() loop.Status { return status })
	}
	behind := func(n int64) *int64 { return &n }
	if diff := cmp.Diff(process.Leadership{Revision: 1, Behind: behind(0)}, report(loop.Status{Revision: 1})); diff != "" {
		t.Errorf("without a leader: -want +got:\n%s", diff)
	}

	election, err := leader.New(leader.Config{Store: f, Key: "leader",
		Candidate: leader.Candidate{ID: "a", Address: "a:1"}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := election.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Resign(context.Background()) //nolint:errcheck // ignored at the end of the test
	page, err := f.Page(t.Context(), store.PageRequest{From: "leader", To: "leaderz"})
	if err != nil {
		t.Fatal(err)
	}
	holder, err := leader.ParseHolder(page.KVs[0])
	if err != nil {
		t.Fatal(err)
	}
	now := page.Revision
	want := process.Leadership{Leader: "a", Address: "a:1", Term: l.Term(), Since: &holder.Since, Revision: now - 1,
		Behind: behind(1)}
	if diff := cmp.Diff(want, report(loop.Status{Revision: now - 1})); diff != "" {
		t.Errorf("a standby: -want +got:\n%s", diff)
	}
	renewed := time.Unix(1000, 0)
	want.Revision, want.Behind, want.Renewed = now, behind(0), &renewed
	own := loop.Status{Revision: now, Serving: true, Term: l.Term(), Renewed: renewed}
	if diff := cmp.Diff(want, report(own)); diff != "" {
		t.Errorf("the leader: -want +got:\n%s", diff)
	}
	own.Term--
	want.Renewed = nil
	if diff := cmp.Diff(want, report(own)); diff != "" {
		t.Errorf("a leader that has not noticed that it was deposed: -want +got:\n%s", diff)
	}

	f.SetHook(func(context.Context, store.Call) store.Outcome { return store.Drop() })
	if diff := cmp.Diff(process.Leadership{Revision: 7}, report(loop.Status{Revision: 7})); diff != "" {
		t.Errorf("without etcd: -want +got:\n%s", diff)
	}
	f.SetHook(nil)
}
