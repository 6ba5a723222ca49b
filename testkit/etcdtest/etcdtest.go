// Package etcdtest starts real etcd servers in the process of a test and stops them when
// the test ends. The servers have short ticks and neither fsync nor logs. They serve
// clients on unix sockets in a temporary directory.
package etcdtest

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"berth.dev/pkg/store"
	"berth.dev/testkit/porttest"
)

// startTimeout is the maximum time until a member is ready.
const startTimeout = time.Minute

// Cluster is an etcd cluster whose members run in this process. The minimum TTL of an
// etcd lease is 1 s with one member, and 2 s with several members.
type Cluster struct {
	members []*embed.Etcd
	sockets []string
}

// Start starts a cluster of one member.
func Start(t testing.TB) *Cluster {
	t.Helper()
	return StartCluster(t, 1)
}

// StartCluster starts a cluster of n members.
func StartCluster(t testing.TB, n int) *Cluster {
	t.Helper()
	// t.TempDir would be too long: the path of a unix socket has at most about 100 bytes.
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &Cluster{members: make([]*embed.Etcd, n)}
	var initial []string
	for i := range n {
		// Members use TCP ports, because etcd does not support unix sockets between members.
		initial = append(initial, fmt.Sprintf("m%d=http://%s", i, porttest.Hold(t)))
		c.sockets = append(c.sockets, "unix://"+filepath.Join(dir, fmt.Sprintf("c%d", i)))
	}
	for i := range n {
		cfg := embed.NewConfig()
		cfg.Name = fmt.Sprintf("m%d", i)
		cfg.Dir = filepath.Join(dir, cfg.Name)
		cfg.InitialCluster = strings.Join(initial, ",")
		cfg.ListenPeerUrls = urls(t, strings.TrimPrefix(initial[i], cfg.Name+"="))
		cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
		cfg.ListenClientUrls = urls(t, c.sockets[i])
		cfg.AdvertiseClientUrls = cfg.ListenClientUrls
		cfg.TickMs, cfg.ElectionMs = 10, 100
		if n > 1 {
			// A leader must not lose its leadership when the operating system does not run it for
			// a short time.
			cfg.TickMs, cfg.ElectionMs = 100, 1000
		}
		cfg.UnsafeNoFsync = true
		cfg.BcryptCost = 4 // the least: with the race detector, etcd needs seconds for a password otherwise
		cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		member, err := embed.StartEtcd(cfg)
		if err != nil {
			t.Fatalf("start etcd: %v", err)
		}
		c.members[i] = member
		t.Cleanup(func() {
			if c.members[i] != nil {
				c.members[i].Close()
			}
		})
	}
	for _, member := range c.members {
		select {
		case <-member.Server.ReadyNotify():
		case err := <-member.Err():
			t.Fatalf("etcd failed: %v", err)
		case <-time.After(startTimeout):
			t.Fatal("etcd did not become ready in time")
		}
	}
	return c
}

func urls(t testing.TB, s string) []url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return []url.URL{*u}
}

// Leaks returns options that make goleak ignore the goroutines that stopped members leave
// behind: goroutines of idle connections between members and of requests to killed
// members. Use the options in the TestMain of packages that do not use HTTP themselves.
func Leaks() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*connReader).backgroundRead"),
		goleak.IgnoreAnyFunction("net/http.(*conn).serve"),
	}
}

// Endpoints returns the client addresses of all members.
func (c *Cluster) Endpoints() []string { return c.sockets }

// Kill stops a member permanently. The member does not transfer its leadership before.
func (c *Cluster) Kill(i int) {
	c.members[i].Server.HardStop()
	c.members[i].Close()
	c.members[i] = nil
}

// Cut disconnects a member from the other members until the test ends. The member
// continues to serve clients. Do not call methods of a killed member: they may panic.
func (c *Cluster) Cut(t testing.TB, i int) {
	server := c.members[i].Server
	server.PauseSending() // a paused member does not receive messages either
	t.Cleanup(server.ResumeSending)
}

// Leader returns the index of the leader, or -1 if no member leads.
func (c *Cluster) Leader() int {
	for i, m := range c.members {
		if m != nil && m.Server.Leader() == m.Server.MemberID() {
			return i
		}
	}
	return -1
}

// Store returns a Store on the cluster. It is closed when the test ends.
func (c *Cluster) Store(t testing.TB) *store.Etcd {
	t.Helper()
	s, err := store.Dial(store.DialConfig{Endpoints: c.sockets})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}
