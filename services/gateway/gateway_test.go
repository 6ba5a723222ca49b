package gateway_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
	"berth.dev/services/gateway"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/services/gateway/internal/stream/streamtest"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

// running is a gateway that runs in the test's process.
type running struct {
	process.Addresses
	stop context.CancelFunc
	done chan struct{}
	err  error // valid after done is closed
}

func run(t *testing.T, config gateway.Config) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{stop: stop, done: make(chan struct{})}
	bound := make(chan process.Addresses, 1)
	go func() {
		defer close(r.done)
		r.err = gateway.Run(ctx, config, func(a process.Addresses) { bound <- a })
	}()
	select {
	case r.Addresses = <-bound:
	case <-r.done:
		t.Fatalf("the gateway ended: %v", r.err)
	}
	t.Cleanup(func() {
		stop()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		<-r.done
	})
	return r
}

// before returns the configuration of a gateway with one replica of all services.
func before(r *replicatest.Replica, etcd ...string) gateway.Config {
	config := gateway.DefaultConfig()
	config.Listen, config.AgentsListen, config.InternalListen, config.LogLevel, config.Etcd = ":0", ":0", ":0", "error",
		etcd
	config.Registry, config.ExecutorState, config.Assigner = []string{r.Address}, []string{r.Address}, []string{r.Address}
	return config
}

// listenFlags has, for each listener flag, a function that sets the listener's address.
var listenFlags = map[string]func(c *gateway.Config, address string){
	"--listen":          func(c *gateway.Config, address string) { c.Listen = address },
	"--agents-listen":   func(c *gateway.Config, address string) { c.AgentsListen = address },
	"--internal-listen": func(c *gateway.Config, address string) { c.InternalListen = address },
}

func body(t *testing.T, url string) string {
	t.Helper()
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func replica(t *testing.T) *replicatest.Replica {
	r := replicatest.Start(t, "", replicatest.Answers{
		Get: func(_ context.Context, req *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
			return &berthv1.Reservation{Uid: "of-" + req.GetJob()}, nil
		},
		Relay: func(s grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error {
			return present(s, nil)
		},
		Replica: &berthv1.Replica{Id: "r1", Role: berthv1.Replica_LEADER, Term: 7},
	})
	r.Lead(model.ServiceRegistry, true)
	r.SetServing(model.ServiceExecutorState, true)
	return r
}

func TestOnePortServesBoth(t *testing.T) {
	etcd := etcdtest.Start(t)
	g := run(t, before(replica(t), etcd.Endpoints()...))

	if got := body(t, "http://"+g.Listen+"/v1/jobs/j/stages/s/reservation"); !strings.Contains(got, "of-j") {
		t.Errorf("REST: %s", got)
	}
	if got := body(t, "http://"+g.Listen+"/v1/leaders"); !strings.Contains(got, `"r1"`) {
		t.Errorf("leaders: %s", got)
	}
	if got := body(t, "http://"+g.HTTP+"/metrics"); !strings.Contains(got, "rpc_client") {
		t.Errorf("the calls sent are not among the metrics: %s", got)
	}
	conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{Health: model.ServiceGateway})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := berthv1.NewReservationsClient(conn).GetReservation(t.Context(), &berthv1.GetReservationRequest{Job: "j"})
	if err != nil || got.GetUid() != "of-j" {
		t.Errorf("gRPC: %v, %v", got, err)
	}
	leaders, err := berthv1.NewLeadersClient(conn).ListLeaders(t.Context(), &berthv1.ListLeadersRequest{})
	if err != nil || leaders.GetServices()[0].GetLeader() != "r1" {
		t.Errorf("leaders: %v, %v", leaders, err)
	}
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("health: %v", err)
	}
}

// await waits until the answer at a URL contains all words.
func (r *running) await(t *testing.T, url string, words ...string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		got := body(t, url)
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(got, word) }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s does not answer %q: %s", url, words, got)
		}
	}
}

// A gateway that cannot use etcd says so wherever an operator looks, and reads no events: it cannot
// know them.
func TestAGatewayWithoutEtcdIsNotReady(t *testing.T) {
	nobody := porttest.Hold(t)
	config := before(replica(t), nobody)
	config.HTTPListen = ":0"
	g := run(t, config)
	reason := "etcd does not answer: " + nobody + " (connection refused)"
	g.await(t, "http://"+g.Listen+"/readyz", `"ready":false`, reason)
	g.await(t, "http://"+g.HTTP+"/readyz", `"ready":false`, reason)
	g.await(t, "http://"+g.Listen+"/v1/leaders", `"notReady":["`+reason)
	g.await(t, "http://"+g.Listen+"/v1/findings", `"GATEWAY_NOT_READY"`, reason)
	g.await(t, "http://"+g.Listen+"/v1/jobs/j/events", "UNAVAILABLE", reason)
}

// The registry has a leader, but executor-state has none. gRPC and REST give the same
// answer.
func TestComposedAnswers(t *testing.T) {
	r := replicatest.Start(t, "", replicatest.Answers{
		Standing: func(_ context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
			return &berthv1.Explanation{
				Reservation: &berthv1.Reservation{Job: q.GetJob(), State: berthv1.Reservation_QUEUED, Count: 3}, Position: 1,
			}, nil
		},
		Findings: func(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
			return &berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{{Kind: "STUCK", Object: "j"}}}, nil
		},
	})
	r.Lead(model.ServiceRegistry, true)
	config, nobody := before(r, porttest.Hold(t)), porttest.Hold(t)
	config.ExecutorState = []string{nobody}
	g := run(t, config)
	conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{Health: model.ServiceGateway})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()

	missing := "no replica of executor-state answers: " + nobody + " (connection refused)"
	e, err := berthv1.NewExplanationsClient(conn).ExplainReservation(ctx,
		&berthv1.ExplainReservationRequest{Job: "j", Stage: "s"})
	if err != nil || e.GetNeeded() != 3 || e.GetMessage() != "the number of workers that fit now is not known: "+missing {
		t.Errorf("explanation: %v, %v", e, err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	f, err := berthv1.NewFindingsClient(conn).ListFindings(ctx, &berthv1.ListFindingsRequest{})
	if err != nil || len(f.GetFindings()) < 3 {
		t.Fatalf("findings: %v, %v", f, err)
	}
	for _, want := range []string{"registry STUCK j", "gateway SERVICE_UNAVAILABLE assigner",
		"gateway SERVICE_UNAVAILABLE executor-state"} {
		if !slices.ContainsFunc(f.GetFindings(), func(f *berthv1.Finding) bool {
			return f.GetService()+" "+f.GetKind()+" "+f.GetObject() == want
		}) {
			t.Errorf("no %q in %v", want, f)
		}
	}
	if got := body(t, "http://"+g.Listen+"/v1/jobs/j/stages/s/reservation:explain"); !strings.Contains(got,
		missing) {
		t.Errorf("REST: %s", got)
	}
}

// A watch shows the roles of replicas and what they answer, and ends with the gateway.
func TestAWatchOfTwoPaths(t *testing.T) {
	etcd := etcdtest.Start(t)
	r := replica(t)
	g := run(t, before(r, etcd.Endpoints()...))
	res, err := http.Get("http://" + g.Listen + "/v1/watch?path=/v1/leaders&path=/v1/jobs/j/stages/s/reservation")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	await := func(want string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return
			}
		}
		t.Fatalf("the stream ended before %s: %v", want, lines.Err())
	}
	await(`"uid":"of-j"`)
	r.Lead(model.ServiceRegistry, false)
	await(`"path":"/v1/jobs/j/stages/s/reservation","error":{"code":14`)
	r.Lead(model.ServiceRegistry, true)
	await(`"uid":"of-j"`)
	g.stop()
	await("this gateway is stopping")
}

func TestEventsAreReadFromEtcd(t *testing.T) {
	etcd := etcdtest.Start(t)
	g := run(t, before(replica(t), etcd.Endpoints()...))
	s, err := store.Dial(store.DialConfig{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &streamtest.Writer{TB: t, Store: s, Keys: keyspace.New("default"), Service: model.ServiceRegistry}
	w.Write("j", 1)
	res, err := http.Get("http://" + g.Listen + "/v1/jobs/j/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for n := range 3 {
		if n > 0 {
			w.Write("j", 1)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), "WORKER_RUNNING") {
			t.Fatalf("event %d: %q, %v", n, lines.Text(), lines.Err())
		}
	}
}

// present answers each request on a relay as present and counts the requests.
func present(s grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer], requests *atomic.Int64) error {
	if err := s.SendHeader(nil); err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		answer := &controlv1.RelayAnswer{}
		for _, q := range m.GetRequests() {
			answer.Present = append(answer.Present, q.GetAgent())
			if requests != nil {
				requests.Add(1)
			}
		}
		if err := s.Send(answer); err != nil {
			return err
		}
	}
}

// A gateway finishes its calls before it stops. It ends its streams at once, so they do not
// delay the stop.
func TestGracefulStop(t *testing.T) {
	config := before(replica(t), etcdtest.Start(t).Endpoints()...)
	config.StopTimeout = time.Minute
	config.HTTPListen = ":0"
	g := run(t, config)
	conn, err := rpc.Dial([]string{g.Agents}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&controlv1.HeartbeatRequest{Id: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// The HTTP listener serves /readyz, too.
	g.await(t, "http://"+g.HTTP+"/readyz", `"ready":true`)
	begin := time.Now()
	g.stop()
	if _, err := stream.Recv(); !strings.Contains(rpc.FromStatus(err).Message, "stopping") {
		t.Errorf("the stream ended with %v", err)
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	if <-g.done; g.err != nil {
		t.Errorf("the gateway ended with %v", g.err)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestABusyPortIsAnError(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	for flag, set := range listenFlags {
		config := before(replica(t), porttest.Hold(t))
		set(&config, busy.Addr().String())
		err = gateway.Run(t.Context(), config, nil)
		if err == nil || !strings.HasPrefix(err.Error(), flag+" "+busy.Addr().String()+" is in use") {
			t.Errorf("%s: got %v", flag, err)
		}
	}
}

func TestABadConfigurationIsAnError(t *testing.T) {
	for name, change := range map[string]func(*gateway.Config){
		"--log-level": func(c *gateway.Config) { c.LogLevel = "loud" },
		"--tls-cert":  func(c *gateway.Config) { c.TLSCert = "/nowhere" },
		"registry":    func(c *gateway.Config) { c.Registry = nil },
		"--max-body-bytes: must be at least 1, got -1":           func(c *gateway.Config) { c.MaxBody = -1 },
		"--max-body-bytes: must be at least 1, got 0":            func(c *gateway.Config) { c.MaxBody = 0 },
		"--max-body-bytes: must be at most 1048576, got 1048577": func(c *gateway.Config) { c.MaxBody = 1<<20 + 1 },
		"--max-streams: must be at least 1, got 0":               func(c *gateway.Config) { c.MaxStreams = 0 },
		"--max-request-memory-bytes: must be at least":           func(c *gateway.Config) { c.MaxRequestMemory = 1 << 20 },
	} {
		config := before(replica(t), porttest.Hold(t))
		change(&config)
		if err := gateway.Run(t.Context(), config, nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A public name that cannot be a Host never matches a request. The gateway therefore
// rejects such a name at start.
func TestInvalidPublicNamesAreRejected(t *testing.T) {
	for _, name := range []string{"", "berth.example.com:8080", "https://berth.example.com", "*.example.com",
		"berth.example.com/v1", "[::1]"} {
		config := before(replica(t), porttest.Hold(t))
		config.PublicNames = []string{"berth.example.com", name}
		if err := gateway.Run(t.Context(), config, nil); err == nil || !strings.Contains(err.Error(), "--public-names") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
