package gateway_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/services/gateway"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/testkit/porttest"
)

// counted starts a replica of every service. It returns a counter of the calls that reach
// the replica.
func counted(t *testing.T) (*replicatest.Replica, *atomic.Int64) {
	t.Helper()
	calls := &atomic.Int64{}
	r := replicatest.Start(t, "", replicatest.Answers{
		Cycle: func(context.Context, *controlv1.CycleRequest) (*controlv1.CycleAnswer, error) {
			calls.Add(1)
			return &controlv1.CycleAnswer{}, nil
		},
		Relay: func(s grpc.BidiStreamingServer[controlv1.RelayRequest, controlv1.RelayAnswer]) error {
			return present(s, calls)
		},
	})
	for _, service := range []string{model.ServiceRegistry, model.ServiceExecutorState, model.ServiceAssigner} {
		r.Lead(service, true)
		r.SetServing(service, true)
	}
	return r, calls
}

// The test calls every method on every listener over real sockets. A method that the
// listener serves reaches its service or the gateway's own handler. Every other method is
// rejected with an error that names the method. Requests are empty, so calls that reach a
// handler may fail.
func TestEachListenerServesItsMethodsAndNoOther(t *testing.T) {
	r, _ := counted(t)
	g := run(t, before(r, porttest.Hold(t)))
	methods, served := access.Methods()
	methods = slices.DeleteFunc(methods, func(m string) bool { return !strings.HasPrefix(m, "/") })
	for at, address := range map[access.Listener]string{access.Public: g.Listen, access.Agents: g.Agents,
		access.Internal: g.Internal} {
		conn, err := rpc.Dial([]string{address}, rpc.DialOptions{Health: model.ServiceGateway})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for _, method := range append(methods, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
			"/berth.v1.Reservations/Guess") {
			err := empty(t, conn, method)
			refused := status.Code(err) == codes.Unimplemented && misdirected.MatchString(status.Convert(err).Message())
			if refused == (served[method]&at != 0) {
				t.Errorf("%s on %v: %v", method, at, err)
			}
		}
	}
}

// Each service that a listener serves has a health of its own. A service that the gateway
// forwards is serving while the gateway reaches a leader, and the gateway is serving always.
func TestHealthOfEachService(t *testing.T) {
	r := replicatest.Start(t, "", replicatest.Answers{})
	r.Lead(model.ServiceRegistry, true)
	g := run(t, before(r, porttest.Hold(t)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	const serving, notServing = healthpb.HealthCheckResponse_SERVING, healthpb.HealthCheckResponse_NOT_SERVING
	for at, address := range map[access.Listener]string{access.Public: g.Listen, access.Agents: g.Agents,
		access.Internal: g.Internal} {
		conn, err := rpc.Dial([]string{address}, rpc.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		health := healthpb.NewHealthClient(conn)
		become := func(name string, want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			watch, err := health.Watch(ctx, &healthpb.HealthCheckRequest{Service: name})
			if err != nil {
				t.Fatal(err)
			}
			for got := (*healthpb.HealthCheckResponse)(nil); got.GetStatus() != want; {
				if got, err = watch.Recv(); err != nil {
					t.Fatalf("%s on %v must become %v: %v", name, at, want, err)
				}
			}
		}
		if at == access.Public {
			become("berth.v1.Reservations", serving)
			r.Lead(model.ServiceExecutorState, true)
			become("berth.v1.Executors", serving)
			r.Lead(model.ServiceExecutorState, false)
			become("berth.v1.Usage", notServing)
		}
		for name := range at.GetServiceInfo() {
			want := serving
			switch name {
			case "berth.v1.Executors", "berth.v1.Catalog", "berth.v1.Usage", "berth.v1.Volumes", "berth.v1.Assignments",
				"berth.control.v1.Agents", "berth.control.v1.Inventory", "berth.control.v1.Dispatch", "berth.control.v1.Gangs":
				want = notServing
			}
			become(name, want)
		}
		_, err = health.Check(ctx, &healthpb.HealthCheckRequest{Service: "berth.v1.Other"})
		if status.Code(err) != codes.NotFound {
			t.Errorf("a service that does not exist on %v: %v", at, err)
		}
		become("", serving)
		become(model.ServiceGateway, serving)
	}
	if _, ok := access.Public.GetServiceInfo()["berth.v1.Reservations"]; !ok {
		t.Error("the public listener does not serve berth.v1.Reservations")
	}
}

// misdirected matches the error for a method that a listener does not serve.
var misdirected = regexp.MustCompile(`^[\w.]+/\w+ is (served on --[a-z-]+|not served by gateways)$|^Berth has no method /`)

// empty calls a unary or streaming method with an empty message.
func empty(t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(rpc.FrameCodec()))
	if err != nil {
		return err
	}
	stream.SendMsg(&rpc.Frame{}) //nolint:errcheck // RecvMsg returns the error
	stream.CloseSend()           //nolint:errcheck // RecvMsg returns the error
	return stream.RecvMsg(&rpc.Frame{})
}

// A control call on the public listener reaches no service. The same call on the listener
// that serves the method reaches its service.
func TestAControlCallOnThePublicListenerReachesNoService(t *testing.T) {
	r, calls := counted(t)
	g := run(t, before(r, porttest.Hold(t)))
	dial := func(address string) *grpc.ClientConn {
		conn, err := rpc.Dial([]string{address}, rpc.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, address := range []string{g.Listen, g.Agents} {
		_, err := controlv1.NewInventoryClient(dial(address)).TryAllocateAndLease(ctx, &controlv1.CycleRequest{Term: 1 << 62})
		if status.Code(err) != codes.Unimplemented || !strings.HasSuffix(status.Convert(err).Message(),
			"TryAllocateAndLease is served on --internal-listen") {
			t.Errorf("a cycle: %v", err)
		}
	}
	for _, address := range []string{g.Listen, g.Internal} {
		stream, err := controlv1.NewHeartbeatsClient(dial(address)).Heartbeat(ctx)
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Unimplemented || !strings.HasSuffix(status.Convert(err).Message(),
			"Heartbeat is served on --agents-listen") {
			t.Errorf("a heartbeat: %v", err)
		}
	}
	if n := calls.Load(); n != 0 {
		t.Errorf("%d calls reached the service", n)
	}
	if _, err := controlv1.NewInventoryClient(dial(g.Internal)).TryAllocateAndLease(ctx,
		&controlv1.CycleRequest{}); err != nil {
		t.Errorf("a cycle on the internal listener: %v", err)
	}
	stream, err := controlv1.NewHeartbeatsClient(dial(g.Agents)).Heartbeat(ctx)
	if err == nil {
		err = stream.Send(&controlv1.HeartbeatRequest{Id: "a"})
	}
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Errorf("a heartbeat on the agents listener: %v", err)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls reached the service, want 2", n)
	}
}

// Only the public listener serves REST, health over HTTP and metrics.
func TestTheOtherListenersServeNoHTTP(t *testing.T) {
	g := run(t, before(replica(t), porttest.Hold(t)))
	for _, address := range []string{g.Agents, g.Internal} {
		if res, err := http.Get("http://" + address + "/healthz"); err == nil {
			res.Body.Close()
			t.Errorf("%s answers HTTP: %s", address, res.Status)
		}
	}
	if got := body(t, "http://"+g.Listen+"/healthz"); !strings.Contains(got, "true") {
		t.Errorf("the public listener: %s", got)
	}
}

// A gateway does not set the memory limit of its process, because in `berth dev` the
// process runs more than a gateway.
func TestAGatewayLeavesTheMemoryLimitToItsProcess(t *testing.T) {
	const limit = 123 << 30
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(limit))
	g := run(t, before(replica(t), porttest.Hold(t)))
	body(t, "http://"+g.Listen+"/healthz")
	if got := debug.SetMemoryLimit(-1); got != limit {
		t.Errorf("the limit is %d, want %d", got, limit)
	}
}

// Each listener presents the certificate. Every listener but the public one requires a
// certificate of its callers, and the public one a role.
func TestTLSOnEveryListener(t *testing.T) {
	config, authority := secured(t, before(replica(t), porttest.Hold(t)))
	config.HTTPListen = ":0"
	g := run(t, config)
	operator := clientOf(t, authority, identity.Operator, "admin")
	anonymous := &tls.Config{RootCAs: operator.RootCAs}
	for _, address := range []string{g.Listen, g.Agents, g.Internal} {
		for name, c := range map[string]struct {
			config *tls.Config
			want   codes.Code
		}{
			"operator": {operator, codes.OK}, "anonymous": {anonymous, codes.Unavailable}, "plain": {nil, codes.Unavailable},
		} {
			if address == g.Listen && name == "anonymous" {
				c.want = codes.OK // health is for everybody
			}
			conn, err := rpc.Dial([]string{address}, rpc.DialOptions{TLS: c.config, FailFast: true})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{},
				grpc.WaitForReady(c.want == codes.OK))
			if status.Code(err) != c.want {
				t.Errorf("%s at %s: %v", name, address, err)
			}
		}
	}
	for name, config := range map[string]*tls.Config{"operator": operator, "anonymous": anonymous} {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
		defer web.CloseIdleConnections()
		for _, address := range []string{g.Listen, g.HTTP} {
			for path, want := range map[string]int{"/healthz": http.StatusOK, "/metrics": http.StatusOK} {
				if path == "/metrics" && name == "anonymous" {
					want = http.StatusForbidden
				}
				res, err := web.Get("https://" + address + path)
				if err != nil {
					t.Fatal(err)
				}
				res.Body.Close()
				if res.StatusCode != want {
					t.Errorf("%s: %s at %s: %s", name, path, address, res.Status)
				}
			}
		}
	}
}

// A listener that is reachable from other hosts requires TLS or --insecure.
func TestListenersBeyondLoopbackRequireTLS(t *testing.T) {
	for flag, set := range listenFlags {
		config := before(replica(t), porttest.Hold(t))
		set(&config, "0.0.0.0:0")
		if err := gateway.Run(t.Context(), config, nil); err == nil ||
			!strings.HasPrefix(err.Error(), flag+" 0.0.0.0:0 is open to the network without TLS") {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// If a gateway starts with port 0, the address file contains the chosen addresses of its
// listeners.
func TestTheAddressFileListsEveryListener(t *testing.T) {
	config := before(replica(t), porttest.Hold(t))
	config.AddressFile, config.HTTPListen = filepath.Join(t.TempDir(), "addresses"), ":0"
	g := run(t, config)
	text, err := os.ReadFile(config.AddressFile)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf(`{"listen":%q,"http":%q,"agents":%q,"internal":%q}`+"\n", g.Listen, g.HTTP, g.Agents, g.Internal)
	if string(text) != want {
		t.Errorf("file %s, want %s", text, want)
	}
	seen := map[string]bool{}
	for _, address := range []string{g.Listen, g.HTTP, g.Agents, g.Internal} {
		host, port, err := net.SplitHostPort(address)
		if err != nil || host != "127.0.0.1" || port == "0" || seen[address] {
			t.Errorf("listener address %q", address)
		}
		seen[address] = true
	}
}
