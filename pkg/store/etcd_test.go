package store_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

// A member that is cut off from the others refuses calls at once, so that the next attempt
// reaches another member. Otherwise, every third call would last until its deadline until
// the member is connected again.
func TestMemberWithoutLeader(t *testing.T) {
	cluster := etcdtest.StartCluster(t, 2)
	whole := cluster.Store(t)
	lease, err := whole.Grant(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Cut(t, 1)
	alone, err := store.Dial(store.DialConfig{Endpoints: cluster.Endpoints()[:1]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone.Close() })
	for noticed := false; !noticed; {
		m := alone.Inspect(t.Context(), time.Second).Members[0]
		noticed = m.Error == "" && !m.HasLeader
	}
	for name, call := range map[string]func(context.Context) error{
		"txn": func(ctx context.Context) error {
			_, err := alone.Txn(ctx, store.Txn{Then: []store.Op{store.Put("k", nil)}})
			return err
		},
		"get": func(ctx context.Context) error {
			_, _, err := alone.Get(ctx, "k")
			return err
		},
		"page": func(ctx context.Context) error {
			_, err := alone.Page(ctx, store.PageRequest{From: "k", To: "l", Limit: 1})
			return err
		},
		"grant": func(ctx context.Context) error {
			_, err := alone.Grant(ctx, time.Hour)
			return err
		},
		"keep alive": func(ctx context.Context) error {
			for {
				// If the member ends the stream before the request is sent, etcd's client returns
				// io.EOF instead of the member's error.
				if _, err := alone.KeepAlive(ctx, lease.ID); !errors.Is(err, io.EOF) {
					return err
				}
			}
		},
		"revoke": func(ctx context.Context) error { return alone.Revoke(ctx, lease.ID) },
		"alarms": func(ctx context.Context) error {
			_, err := alone.Alarms(ctx)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // some cases repeat their call for a while
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := call(ctx); err == nil || !strings.Contains(err.Error(), "no leader") {
				t.Errorf("got %v from a member without a leader", err)
			}
		})
	}
}

// The alarms of each member are reported soon after an alarm is raised, and soon after it
// is disarmed.
func TestAlarms(t *testing.T) {
	s := etcdtest.StartCluster(t, 3).Store(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if alarms, err := s.Alarms(ctx); err != nil || len(alarms) != 0 {
		t.Fatalf("a healthy etcd has alarms %q, %v", alarms, err)
	}
	maintenance := etcdserverpb.NewMaintenanceClient(s.Client().ActiveConnection())
	members, err := s.Client().MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		action etcdserverpb.AlarmRequest_AlarmAction
		want   []string
	}{
		{etcdserverpb.AlarmRequest_ACTIVATE, []string{"NOSPACE"}},
		{etcdserverpb.AlarmRequest_DEACTIVATE, nil},
	} {
		for _, m := range members.Members {
			request := &etcdserverpb.AlarmRequest{Action: c.action, MemberID: m.GetID(), Alarm: etcdserverpb.AlarmType_NOSPACE}
			if _, err := maintenance.Alarm(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
		for told := 0; told < 6; { // any member may answer
			alarms, err := s.Alarms(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if told++; !slices.Equal(alarms, c.want) {
				told = 0
			}
		}
	}
}
