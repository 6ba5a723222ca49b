package access

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth-agent/host"
	"berth.dev/pkg/access"
	"berth.dev/pkg/agent"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/pkg/resource"
	"berth.dev/pkg/transport"
	"berth.dev/services/assigner"
	executorstate "berth.dev/services/executor-state"
	"berth.dev/services/gateway"
	"berth.dev/services/registry"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

// cluster is the name of the cluster.
const cluster = "default"

// world is a cluster with TLS in this process.
type world struct {
	t         *testing.T
	dir       string
	authority *certs.Authority
	// addresses has the addresses of each kind of listener.
	addresses map[access.Listener][]string
}

// start starts one replica of each service, a gateway and an agent.
func start(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), addresses: map[access.Listener][]string{}}
	var err error
	if w.authority, err = certs.Init(w.dir, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	etcd := etcdtest.Start(t).Endpoints()
	internal := porttest.Hold(t)
	service := func(name string) process.Service {
		c := process.ServiceDefaults(0, 0)
		c.Etcd, c.Gateways, c.LogLevel, c.Listen, c.HTTPListen = etcd, []string{internal}, "error", ":0", ":0"
		c.Pprof = true
		c.Security = w.security(identity.Service, name)
		return c
	}
	r, e, a := registry.Defaults(), executorstate.Defaults(), assigner.Defaults()
	r.Service, e.Service, a.Service = service(model.ServiceRegistry), service(model.ServiceExecutorState),
		service(model.ServiceAssigner)
	g := gateway.DefaultConfig()
	g.Etcd, g.LogLevel, g.Listen, g.AgentsListen, g.InternalListen, g.HTTPListen = etcd, "error", ":0", ":0", internal,
		":0"
	g.Security = w.security(identity.Gateway, "g")
	g.Pprof = true
	g.Access = filepath.Join(w.dir, "access.yaml")
	if err := os.WriteFile(g.Access, []byte(accessFile), 0o600); err != nil {
		t.Fatal(err)
	}
	services := []process.Addresses{run(w, registry.Run, r), run(w, executorstate.Run, e), run(w, assigner.Run, a)}
	g.Registry, g.ExecutorState, g.Assigner = []string{services[0].Listen}, []string{services[1].Listen},
		[]string{services[2].Listen}
	bound := run(w, gateway.Run, g)
	w.addresses[access.Public], w.addresses[access.Agents], w.addresses[access.Internal] = []string{bound.Listen},
		[]string{bound.Agents}, []string{bound.Internal}
	w.addresses[access.Service] = slices.Concat(g.Registry, g.ExecutorState, g.Assigner)
	for _, p := range append(services, bound) {
		w.addresses[access.Operations] = append(w.addresses[access.Operations], p.HTTP)
	}
	w.startAgent(bound.Agents)
	w.awaitReady(bound.Listen)
	return w
}

// accessFile has a token for an operator and one for a job service.
var accessFile = fmt.Sprintf("tokens:\n- {role: operator, name: alice, sha256: %x}\n- {role: job, name: train, sha256: %x}\n",
	sha256.Sum256([]byte("of alice")), sha256.Sum256([]byte("of train")))

// security returns the options of a process with a new certificate and an audit log.
func (w *world) security(role identity.Role, name string) process.Security {
	files := w.issue(role, name)
	return process.Security{TLSCert: files.Cert, TLSKey: files.Key, TLSCA: files.CA,
		AuditLog: filepath.Join(w.dir, role.String()+"-"+name+".audit")}
}

func (w *world) issue(role identity.Role, name string) certs.Files {
	w.t.Helper()
	hosts := []string{"127.0.0.1", "gw.example.com"}
	files, err := w.authority.Issue(identity.Identity{Cluster: cluster, Role: role, Name: name}, hosts,
		24*time.Hour)
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// run starts a part of the cluster and returns its addresses.
func run[C any](w *world, part func(context.Context, C, func(process.Addresses)) error, config C) process.Addresses {
	w.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	bound, ended := make(chan process.Addresses, 1), make(chan error, 1)
	go func() { ended <- part(ctx, config, func(a process.Addresses) { bound <- a }) }()
	w.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	select {
	case a := <-bound:
		return a
	case err := <-ended:
		ended <- nil
		w.t.Fatal(err)
		return process.Addresses{}
	}
}

func (w *world) startAgent(gatewayAddress string) {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	secured, err := w.security(identity.Agent, "host").Secure(cluster, identity.Agent, log)
	if err != nil {
		w.t.Fatal(err)
	}
	h := host.Open(context.Background(), l, []string{gatewayAddress}, secured, nil, log)
	w.t.Cleanup(func() {
		h.Close(true, 10*time.Second)
		secured.Close()
	})
	if _, err := h.Add(agent.Config{ID: "other", Driver: agent.Simulated{}}); err == nil ||
		!strings.Contains(err.Error(), `is for the executor "host", not for "other"`) {
		w.t.Errorf("an agent with the certificate of another executor: %v", err)
	}
	a, err := h.Add(agent.Config{ID: "host", Host: "host", Resources: resource.Vector{resource.Slots: 1},
		Driver: agent.Simulated{}})
	if err != nil {
		w.t.Fatal(err)
	}
	operations, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	if err := h.Operate(operations, a, true); err != nil {
		w.t.Fatal(err)
	}
	w.addresses[access.Operations] = append(w.addresses[access.Operations], operations.Addr().String())
	w.addresses[access.Agent] = []string{l.Addr().String()}
}

// awaitReady waits until every service has a leader and the agent is present.
func (w *world) awaitReady(address string) {
	conn := w.dial(address, w.caller(identity.Operator, "admin"))
	for {
		got, err := berthv1.NewExecutorsClient(conn).GetExecutor(w.t.Context(), &berthv1.GetExecutorRequest{Id: "host"})
		leaders, listErr := berthv1.NewLeadersClient(conn).ListLeaders(w.t.Context(), &berthv1.ListLeadersRequest{})
		led := !slices.ContainsFunc(leaders.GetServices(),
			func(s *berthv1.ServiceLeadership) bool { return s.GetLeader() == "" })
		if err == nil && listErr == nil && led && got.GetState() == berthv1.Executor_READY {
			return
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatal(err, listErr)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// caller returns the configuration of a caller with a role.
func (w *world) caller(role identity.Role, name string) *tls.Config {
	w.t.Helper()
	files := w.issue(role, name)
	config, err := transport.ClientConfig(files.Cert, files.Key, files.CA)
	if err != nil {
		w.t.Fatal(err)
	}
	return config
}

func (w *world) dial(address string, config *tls.Config) *grpc.ClientConn {
	w.t.Helper()
	// Only the authority counts here: the certificates of services and agents have no host
	// names.
	config = config.Clone()
	config.InsecureSkipVerify = true
	conn, err := rpc.Dial([]string{address}, rpc.DialOptions{TLS: config})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return conn
}

// call calls a unary or streaming method with an empty message, or the fields of one, and returns the
// error of the first answer.
func call(t *testing.T, conn *grpc.ClientConn, method string, fields ...byte) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.ForceCodecV2(rpc.FrameCodec()))
	if err != nil {
		return err
	}
	stream.SendMsg(&rpc.Frame{Bytes: fields}) //nolint:errcheck // RecvMsg returns the error
	stream.CloseSend()                        //nolint:errcheck // RecvMsg returns the error
	return stream.RecvMsg(&rpc.Frame{})
}

// TestEveryMethodAsEveryRole calls every method on every listener as every role and as
// nobody, and compares the outcome with the table.
func TestEveryMethodAsEveryRole(t *testing.T) {
	w := start(t)
	methods, _ := access.Methods()
	allowed := map[string]identity.Role{}
	for _, rule := range access.Rules() {
		allowed[rule.Method+rule.Listener.String()] = rule.Roles
	}
	callers := map[identity.Role]*tls.Config{identity.Nobody: anonymous(w)}
	for _, role := range identity.Roles {
		callers[role] = w.caller(role, "caller")
	}
	calls := 0
	implemented := map[string]bool{} // by method and listener
	for _, at := range access.Listeners[:5] {
		for role, config := range callers {
			if role == identity.Nobody && at != access.Public {
				continue // TLS rejects the connection
			}
			for _, address := range w.addresses[at] {
				conn := w.dial(address, config)
				for _, method := range methods {
					if !strings.HasPrefix(method, "/") {
						continue
					}
					calls++
					may, served := allowed[method+at.String()]
					err := call(t, conn, method)
					implemented[method+at.String()] = implemented[method+at.String()] || status.Code(err) != codes.Unimplemented
					if problem := compare(err, may, served, role, at == access.Service); problem != "" {
						t.Errorf("%s on %v as %v: %v: %s", method, at, role, err, problem)
					}
				}
			}
		}
	}
	for _, rule := range access.Rules() {
		if strings.HasPrefix(rule.Method, "/") && !implemented[rule.Method+rule.Listener.String()] {
			t.Errorf("no process implements %s on %v", rule.Method, rule.Listener)
		}
	}
	if calls < 1500 {
		t.Errorf("only %d calls", calls)
	}
}

func anonymous(w *world) *tls.Config {
	config := w.caller(identity.Viewer, "caller")
	config.Certificates = nil
	return config
}

// compare returns how the outcome of a call differs from the table, or "". some is true if
// only one of several processes of this kind serves the method.
func compare(err error, may identity.Role, served bool, role identity.Role, some bool) string {
	s := status.Convert(err)
	missing := s.Code() == codes.PermissionDenied && strings.Contains(s.Message(), " requires the role ")
	switch {
	case s.Code() == codes.Unimplemented:
		if served && !some {
			return "must be served"
		}
	case !served && !missing:
		return "must not be served"
	case !served:
	case may == identity.Everybody && s.Code() == codes.PermissionDenied:
		return "must be admitted"
	case may == identity.Everybody || may&role != 0:
		if missing {
			return "must be admitted"
		}
	case !missing:
		return "must be rejected"
	case !strings.Contains(s.Message(), " requires the role "+may.String()+";"):
		return "the error must name the missing role"
	}
	return ""
}

// Every public call that changes something is refused if it has a field of a later version. Otherwise
// an older service would do something else than what the caller wants.
func TestFieldsOfLaterVersionsAreRefused(t *testing.T) {
	w := start(t)
	conn := w.dial(w.addresses[access.Public][0], w.caller(identity.Operator, "operator"))
	field := protowire.AppendVarint(protowire.AppendTag(nil, 49, protowire.VarintType), 1)
	tried := 0
	for _, rule := range access.Rules() {
		if rule.Listener != access.Public || !rule.Changes || !strings.HasPrefix(rule.Method, "/") {
			continue
		}
		tried++
		err := call(t, conn, rule.Method, field...)
		if s := status.Convert(err); s.Code() != codes.InvalidArgument || !strings.Contains(s.Message(), "field number 49") {
			t.Errorf("%s: %v", rule.Method, err)
		}
	}
	if tried < 15 {
		t.Errorf("only %d methods", tried)
	}
}

// TestOperationsOverHTTP does the same for the paths of operations.
func TestOperationsOverHTTP(t *testing.T) {
	w := start(t)
	callers := map[identity.Role]*tls.Config{identity.Nobody: anonymous(w)}
	for _, role := range identity.Roles {
		callers[role] = w.caller(role, "caller")
	}
	for _, rule := range access.Rules() {
		path, plain := strings.CutPrefix(rule.Method, "GET ")
		if !plain {
			continue
		}
		for role, config := range callers {
			config := config.Clone()
			config.InsecureSkipVerify = true
			web := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
			for _, address := range w.addresses[rule.Listener] {
				for _, verb := range []string{"GET", "HEAD", "POST"} {
					request, err := http.NewRequestWithContext(t.Context(), verb, "https://"+address+path, http.NoBody)
					if err != nil {
						t.Fatal(err)
					}
					res, err := web.Do(request)
					if err != nil {
						t.Fatal(err)
					}
					res.Body.Close()
					admitted := rule.Roles == identity.Everybody || rule.Roles&role != 0
					missing := verb == "GET" && res.StatusCode == http.StatusNotFound && path != "/leaderz" // gateways have no leader
					if (res.StatusCode == http.StatusForbidden) == admitted || missing {
						t.Errorf("%s %s on %v as %v: %s", verb, path, rule.Listener, role, res.Status)
					}
				}
			}
			web.CloseIdleConnections()
		}
	}
}

// TestRestAsEveryRole calls one path of each kind over REST. A rejected call has an audit line.
func TestRestAsEveryRole(t *testing.T) {
	w := start(t)
	for _, c := range []struct {
		method, path, body string
		roles              identity.Role
		audited            string // the method in the audit log if the call is admitted
	}{
		{"GET", "/v1/executors", "", identity.Autoscaler | identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/leaders", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/caller", "", identity.Everybody, ""},
		{"GET", "/v1/audit", "", identity.Operator, ""},
		{"POST", "/session", `{"token":"of alice"}`, identity.Everybody, "POST /session"}, // not accepted in a cookie
		{"DELETE", "/session", "", identity.Everybody, "DELETE /session"},
		{"GET", "/v1/findings", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/tenants", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/jobs", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"PUT", "/v1/jobs/caller-1/stages/s/reservation", `{"count":1,"requestId":"r1"}`, identity.Job | identity.Operator,
			"berth.v1.Reservations/UpsertReservation"},
		{"GET", "/v1/jobs/caller-1/stages/s/reservation", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"PUT", "/v1/jobs/another/stages/s/reservation", `{"count":1}`, identity.Operator,
			"berth.v1.Reservations/UpsertReservation"},
		{"GET", "/v1/jobs/caller/stages/s/reservation:members", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/jobs/another/stages/s/reservations/main:members", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/jobs/caller/stages/s/workers/0/output", "", identity.Job | identity.Operator, ""},
		{"GET", "/v1/jobs/another/stages/s/workers/0/output", "", identity.Operator, ""},
		{"GET", "/v1/jobs/another/events", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/assignments", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/assignments?job=caller", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/volumes", "", identity.Viewer | identity.Operator, ""},
		{"GET", "/v1/volumes?job=caller", "", identity.Job | identity.Viewer | identity.Operator, ""},
		{"POST", "/v1/volumes:delete", `{"ids":["none"]}`, identity.Operator, "berth.v1.Volumes/DeleteVolumes"},
		{"POST", "/v1/volumes:delete", `{"ids":["none"],"job":"caller"}`, identity.Job | identity.Operator,
			"berth.v1.Volumes/DeleteVolumes"},
		{"POST", "/v1/volumes:abandon", `{"ids":["none"]}`, identity.Operator, "berth.v1.Volumes/AbandonVolumes"},
		{"POST", "/v1/executors/none:drain", "{}", identity.Operator, "berth.v1.Executors/DrainExecutor"},
	} {
		for _, role := range append([]identity.Role{identity.Nobody}, identity.Roles...) {
			config := anonymous(w)
			if role != identity.Nobody {
				config = w.caller(role, "caller")
			}
			before := len(w.audit("gateway-g"))
			web := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
			request, err := http.NewRequestWithContext(t.Context(), c.method, "https://"+w.addresses[access.Public][0]+c.path,
				strings.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			res, err := web.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			admitted := c.roles == identity.Everybody || c.roles&role != 0
			if (res.StatusCode == http.StatusForbidden) == admitted {
				t.Errorf("%s %s as %v: %s", c.method, c.path, role, res.Status)
			}
			lines := w.audit("gateway-g")[before:]
			switch {
			case !admitted && (len(lines) != 1 || lines[0].Outcome != "PermissionDenied" || lines[0].Message == ""),
				admitted && c.audited == "" && len(lines) != 0,
				admitted && c.audited != "" && (len(lines) != 1 || lines[0].Method != c.audited):
				t.Errorf("%s %s as %v: audit log %+v", c.method, c.path, role, lines)
			case admitted && strings.Contains(c.path, "caller-1") && c.audited != "" && (lines[0].Object != "caller-1/s" ||
				lines[0].RequestID != "r1" || lines[0].Revision == 0 || lines[0].Outcome != "OK" || lines[0].Peer == "" ||
				lines[0].Caller != fmt.Sprintf("berth://default/%v/caller", role) || lines[0].Listener != "--listen"):
				t.Errorf("%s %s as %v: audit line %+v", c.method, c.path, role, lines[0])
			}
		}
	}
}

// Callers may call a gateway by the names in its certificate, and by no others.
func TestTheNamesInTheCertificate(t *testing.T) {
	w := start(t)
	for name, want := range map[string]int{"gw.example.com": http.StatusOK, "evil.example.com": http.StatusForbidden} {
		config := w.caller(identity.Viewer, "v")
		config.InsecureSkipVerify = true
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, w.addresses[access.Public][0])
			}}}
		res, err := web.Get("https://" + name + "/v1/executors")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s", name, res.Status)
		}
	}
}

// audit returns the lines of the audit log of a process.
func (w *world) audit(name string) (lines []access.Entry) {
	w.t.Helper()
	f, err := os.Open(filepath.Join(w.dir, name+".audit"))
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for scan := bufio.NewScanner(f); scan.Scan(); {
		var e access.Entry
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			w.t.Fatalf("%s: %v", scan.Text(), err)
		}
		lines = append(lines, e)
	}
	return lines
}
