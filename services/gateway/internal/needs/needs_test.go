package needs_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/gateway/internal/leaders"
	"berth.dev/services/gateway/internal/needs"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

var space = keyspace.New("own")

// lines is a log that may be read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(text)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// gateway is what a gateway needs, with the log.
type gateway struct {
	*testing.T
	*needs.Needs
	log *lines
}

// run starts to check what a gateway of the cluster "own" needs.
func run(t *testing.T, etcd string, replicas map[string][]string) *gateway {
	t.Helper()
	s, err := store.Dial(store.DialConfig{Endpoints: []string{etcd}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := leaders.New(replicas, nil)
	if err != nil {
		t.Fatal(err)
	}
	log := &lines{}
	g := &gateway{t, needs.New(needs.Options{Etcd: s, Space: space, Replicas: l, Cluster: "own", Replica: "gateway-0",
		Log: slog.New(slog.NewTextHandler(log, nil))}), log}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.Needs.Run(ctx) //nolint:errcheck // it returns nil
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		l.Close()
		s.Close()
	})
	return g
}

// await waits until the gateway is not ready for a reason, or ready if the reason is empty.
func (g *gateway) await(reason string) {
	g.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		got := strings.Join(g.Reasons(), "; ")
		if got == reason {
			break
		}
		if time.Now().After(deadline) {
			g.Fatalf("got  %q\nwant %q\n%s", got, reason, g.log)
		}
	}
	if err := g.Ready(); (err == nil) != (reason == "") || err != nil && (fault.Of(err).Kind != fault.Unavailable ||
		fault.Of(err).Message != "the gateway is not ready: "+reason) {
		g.Errorf("ready: %v", err)
	}
	var found []string
	for _, f := range g.Findings() {
		if f.GetKind() == needs.FindingNotReady {
			found = append(found, f.GetMessage())
			if f.GetObject() != "gateway-0" || f.GetService() != "gateway" || f.GetSince() == nil || f.GetAction() == "" {
				g.Errorf("finding %v", f)
			}
		}
	}
	if got := strings.Join(found, "; "); got != reason {
		g.Errorf("findings %q, want %q", got, reason)
	}
}

// events checks whether the gateway may read events.
func (g *gateway) events(readable bool) {
	g.Helper()
	if err := g.EventsReadable(g.Context()); (err == nil) != readable {
		g.Errorf("the events can be read: %v", err)
	}
}

// answers starts a replica that uses an etcd cluster and belongs to a cluster.
func answers(t *testing.T, address, id, cluster, etcd string) *replicatest.Replica {
	t.Helper()
	return replicatest.Start(t, address, replicatest.Answers{Replica: &berthv1.Replica{Id: id,
		Role: berthv1.Replica_STANDBY, Cluster: cluster, EtcdCluster: etcd}})
}

// id returns the ID of an etcd cluster.
func id(t *testing.T, c *etcdtest.Cluster) string {
	t.Helper()
	s := c.Store(t)
	if err := s.Check(t.Context(), "k"); err != nil {
		t.Fatal(err)
	}
	return s.ClusterID()
}

// all returns the addresses of services with one replica each.
func all(registry, executorState, assigner string) map[string][]string {
	return map[string][]string{model.ServiceRegistry: {registry}, model.ServiceExecutorState: {executorState},
		model.ServiceAssigner: {assigner}}
}

func TestAGatewayThatHasEverythingIsReady(t *testing.T) {
	etcd := etcdtest.Start(t)
	r := answers(t, "", "r", "own", id(t, etcd)).Address
	old := answers(t, "", "o", "", "").Address // of version 0.1.0
	g := run(t, etcd.Endpoints()[0], all(r, r, old))
	g.events(true)
	g.await("")
	if g.log.String() != "" || len(g.Findings()) > 0 {
		t.Errorf("log %q, findings %v", g.log, g.Findings())
	}
}

func TestAWrongEtcd(t *testing.T) {
	r := answers(t, "", "r", "own", "a1").Address
	nobody := porttest.Hold(t)
	g := run(t, nobody, all(r, r, r))
	g.events(false)
	g.await("etcd does not answer: " + nobody + " (connection refused)")
}

// A replica that exits is missing only after a while. When it is back, the gateway is ready at once.
// The log has one line for each change.
func TestAMissingService(t *testing.T) {
	etcd := etcdtest.Start(t)
	r, nobody := answers(t, "", "r", "own", "").Address, porttest.Hold(t)
	g := run(t, etcd.Endpoints()[0], all(nobody, r, r))
	missing := "no replica of registry answers: " + nobody + " (connection refused)"
	g.events(true)
	g.await(missing)
	first := answers(t, nobody, "r", "own", "")
	g.await("")
	first.Stop()
	stopped := time.Now()
	g.await(missing)
	if took := time.Since(stopped); took < 4*time.Second {
		t.Errorf("the gateway was not ready after %v", took)
	}
	answers(t, nobody, "r", "own", "")
	g.await("")
	for !strings.HasSuffix(strings.TrimSpace(g.log.String()), "msg=ready") { // it is written a moment later
		time.Sleep(time.Millisecond)
	}
	if n := strings.Count(g.log.String(), "\n"); n != 4 {
		t.Errorf("%d lines: %s", n, g.log)
	}
}

// A gateway that reads the etcd of another cluster must not say that there are no events.
func TestAnotherEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	own := id(t, etcd)
	r, s := answers(t, "", "r", "own", "abc").Address, answers(t, "", "s", "own", own).Address
	g := run(t, etcd.Endpoints()[0], all(r, s, s))
	g.events(false)
	g.await(fmt.Sprintf(
		"this gateway reads the etcd cluster %s, which is not the one of the services: r uses abc", own))

	// A replica whose service has others that use the right one is a finding of its own.
	replicas := all(r, s, s)
	replicas[model.ServiceRegistry] = []string{s, r}
	g = run(t, etcd.Endpoints()[0], replicas)
	g.events(true)
	g.await("")
	g.awaitOther("r")
}

// awaitOther waits for the finding and the log line about a replica that uses another etcd.
func (g *gateway) awaitOther(replica string) {
	g.Helper()
	want := "OTHER_ETCD " + replica + ": it uses another etcd than other replicas of registry and than this gateway"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if slices.ContainsFunc(g.Findings(), func(f *berthv1.Finding) bool {
			return f.GetKind()+" "+f.GetObject()+": "+f.GetMessage() == want && f.GetSince() != nil && f.GetAction() != ""
		}) && strings.Contains(g.log.String(), "replicas use another etcd") {
			return
		}
		if time.Now().After(deadline) {
			g.Fatalf("findings %v, want %s\n%s", g.Findings(), want, g.log)
		}
	}
}

// Two etcd clusters may have the same ID. Then the leader of a service shows whether the gateway reads
// the etcd of the services: its record must be there.
func TestAnotherEtcdWithTheSameID(t *testing.T) {
	etcd := etcdtest.Start(t)
	own := id(t, etcd)
	leading := func(id, instance string) string {
		return replicatest.Start(t, "", replicatest.Answers{Replica: &berthv1.Replica{Id: id, Instance: instance,
			Role: berthv1.Replica_LEADER, Cluster: "own", EtcdCluster: own}}).Address
	}
	r, standby := leading("r", "1"), answers(t, "", "s", "own", own).Address
	replicas := all(r, standby, standby)
	replicas[model.ServiceRegistry] = []string{standby, r}
	g := run(t, etcd.Endpoints()[0], replicas)
	g.events(false)
	g.await(fmt.Sprintf(
		"this gateway reads the etcd cluster %s, which is not the one of the services: it has no leader r of registry", own))

	record, err := proto.Marshal(&recordv1.Leader{Replica: "r", Instance: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Store(t).Txn(t.Context(), store.Txn{Then: []store.Op{
		store.Put(space.Key(model.LeaderRef(model.ServiceRegistry)), record)}}); err != nil {
		t.Fatal(err)
	}
	g.await("")
	g.events(true)

	replicas[model.ServiceRegistry] = []string{r, leading("stranger", "2")}
	g = run(t, etcd.Endpoints()[0], replicas)
	g.await("")
	g.awaitOther("stranger")
}

// A replica that lacks something says so itself, and the gateway lists it.
func TestAReplicaThatIsCutOff(t *testing.T) {
	etcd := etcdtest.Start(t)
	r := answers(t, "", "r", "own", "").Address
	lacking := replicatest.Start(t, "", replicatest.Answers{Replica: &berthv1.Replica{Id: "lacking",
		Role: berthv1.Replica_STANDBY, Lacks: []string{"no etcd", "no gateway"}}}).Address
	g := run(t, etcd.Endpoints()[0], all(r, lacking, r))
	g.await("")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if f := g.Findings(); len(f) == 1 {
			if f[0].GetKind() != needs.FindingCutOff || f[0].GetObject() != "lacking" ||
				f[0].GetMessage() != "no etcd; no gateway" || f[0].GetAction() == "" {
				t.Errorf("finding %v", f)
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("findings %v", g.Findings())
		}
	}
}

func TestAnotherCluster(t *testing.T) {
	etcd := etcdtest.Start(t)
	own := id(t, etcd)
	r, s := answers(t, "", "r", "other", own).Address, answers(t, "", "s", "own", own).Address
	g := run(t, etcd.Endpoints()[0], all(s, s, r))
	g.events(false)
	g.await(fmt.Sprintf("this gateway is of the cluster %q, and of the cluster %q is r at %s", "own", "other", r))
}

// Before the first round nothing is known, so the gateway is not ready.
func TestNothingIsKnownBeforeTheFirstRound(t *testing.T) {
	n := needs.New(needs.Options{})
	if err := n.Ready(); fault.Of(err).Kind != fault.Unavailable {
		t.Errorf("ready: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.EventsReadable(ctx); err == nil {
		t.Error("the events can be read")
	}
	if f := n.Findings(); len(f) > 0 {
		t.Errorf("findings %v", f)
	}
}
