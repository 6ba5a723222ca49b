package fleet

import (
	"context"
	"os"
	"testing"
	"time"

	"berth.dev/cmd/berth/internal/asberth"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

// TestMembersOfEtcd moves the leadership of etcd, and kills and restarts members, while
// the fleet runs with TLS. No data may be lost.
func TestMembersOfEtcd(t *testing.T) {
	asberth.Children(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	links := map[[2]string]bool{}
	f, err := Start(ctx, Config{
		Binary: os.Args[0], Dir: t.TempDir(), Replicas: 1, Etcd: 3, LogLevel: "warn", TLS: transport.Require,
		Via: func(from, to, address string) (string, error) {
			links[[2]string{from, to}] = true
			return address, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, link := range [][2]string{{"registry-0", "etcd-2"}, {"assigner-0", "gateway-0"},
		{"gateway-0", "executor-state-0"}, {"gateway-0", "etcd-0"}, {"peers", "etcd-1"}} {
		if !links[link] {
			t.Errorf("Via was not called for the link %v", link)
		}
	}
	endpoints, err := f.EtcdConfig()
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Dial(endpoints)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(key string) {
		t.Helper()
		for {
			// A member waits 7 s for the result of a write that it has forwarded to a
			// dead leader.
			attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := s.Txn(attempt, store.Txn{Then: []store.Op{store.Put(key, []byte(key))}})
			cancel()
			if err == nil {
				return
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}
	leads := func() int {
		t.Helper()
		for {
			i, err := f.EtcdLeader(ctx)
			if err == nil {
				return i
			}
			if ctx.Err() != nil {
				t.Fatal(err)
			}
		}
	}

	var to int
	// On a slow machine the members may elect another leader at the same time. The loop
	// then tries the next member.
	for tries := 5; ; tries-- {
		to = (leads() + 1) % 3
		err := f.MoveEtcdLeader(ctx, to)
		got := leads()
		if err == nil && got == to {
			break
		}
		if tries == 1 {
			t.Fatalf("etcd-%d leads, want etcd-%d: %v", got, to, err)
		}
	}
	f.Member(to).Kill()
	put("/test/while-one-is-away")
	if got := leads(); got == to {
		t.Errorf("etcd-%d leads, but it was killed", got)
	}
	if err := f.Restart(ctx, f.Member(to)); err != nil {
		t.Fatal(err)
	}
	f.Member((to + 1) % 3).Kill()
	put("/test/with-the-one-that-came-back")
	if _, _, err := f.Leader(ctx, Services[0]); err != nil {
		t.Errorf("the gateway does not answer: %v", err)
	}
}
