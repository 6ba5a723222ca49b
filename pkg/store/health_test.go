package store_test

import (
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
)

func TestInspectReportsEtcdHealth(t *testing.T) {
	c := etcdtest.StartCluster(t, 3)
	s := c.Store(t)
	const each = 5 * time.Second
	names := func(h store.Health) (up, gone, leads []string) {
		for _, m := range h.Members {
			if m.Error != "" {
				gone = append(gone, m.Name)
				continue
			}
			up = append(up, m.Name)
			if m.Leads {
				leads = append(leads, m.Name)
			}
			if m.Version == "" || m.Quota == 0 || m.Size == 0 || m.Index == 0 || m.Learner {
				t.Errorf("%+v", m)
			}
		}
		return up, gone, leads
	}

	var revision int64
	for range 3 {
		result, err := s.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("/k", []byte("v"))}})
		if err != nil {
			t.Fatal(err)
		}
		revision = result.Revision
	}
	h := s.Inspect(t.Context(), each)
	up, gone, leads := names(h)
	if !slices.Equal(up, []string{"m0", "m1", "m2"}) || gone != nil || len(leads) != 1 {
		t.Errorf("up %v, down %v, leader %v", up, gone, leads)
	}
	if h.ReadError != "" || h.Read <= 0 || h.Alarms != nil || h.Revision != revision || h.Compacted != 0 {
		t.Errorf("%+v", h)
	}

	if _, err := s.Client().Compact(t.Context(), revision-1); err != nil {
		t.Fatal(err)
	}
	if h := s.Inspect(t.Context(), each); h.Compacted != revision-1 {
		t.Errorf("compacted %d, want %d", h.Compacted, revision-1)
	}

	// If only one endpoint is configured, the other members are found through its member list.
	one, err := store.Dial(store.DialConfig{Endpoints: c.Endpoints()[:1]})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	if up, gone, _ := names(one.Inspect(t.Context(), each)); len(up) != 3 || gone != nil {
		t.Errorf("by one endpoint: up %v, down %v", up, gone)
	}

	// Two of three members have stopped. The remaining member reports them, and that reads
	// fail.
	c.Kill(1)
	c.Kill(2)
	// Each stopped member uses the whole timeout, so the first timeout is short. If the
	// remaining member is slow, the test retries with a longer timeout.
	for patience := 500 * time.Millisecond; patience < time.Minute; patience *= 3 {
		h = s.Inspect(t.Context(), patience)
		if up, _, _ := names(h); len(up) > 0 {
			break
		}
	}
	if up, gone, _ := names(h); !slices.Equal(up, []string{"m0"}) || !slices.Equal(gone, []string{"m1", "m2"}) ||
		h.ReadError == "" {
		t.Errorf("up %v, down %v, read error %q", up, gone, h.ReadError)
	}
}
