package scenario

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/access"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/pkg/transport"
)

// trainToken is the bearer token of the job service train.
const trainToken = "train-0b7f7a6d3f2f4c1e9a58"

// secured is a world whose processes require TLS and write audit logs. Its access file has a
// bearer token.
type secured struct {
	*world
	audits string // directory of the audit logs
}

func startSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{audits: t.TempDir()}
	accessFile := filepath.Join(s.audits, "access.yaml")
	text := fmt.Sprintf("tokens:\n- {role: job, name: train, sha256: %x}\n", sha256.Sum256([]byte(trainToken)))
	if err := os.WriteFile(accessFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := map[string][]string{
		"":        {"--access", accessFile},
		"gateway": {"--http-listen", "127.0.0.1:0"},
	}
	for _, name := range []string{"gateway-0", "registry-0", "registry-1", "executor-state-0", "executor-state-1",
		"assigner-0", "assigner-1", "host", "sim"} {
		flags[name] = []string{"--audit-log", s.audit(name)}
	}
	// With the longest TTL, only the liveness probe explains a fast failover.
	s.world = start(t, fleet.Config{TLS: transport.Require, TTL: longest, Flags: flags})
	s.startSim("sim", 2, 4)
	s.startAgents(fleet.Agent{ID: "host", SKU: "host", Slots: 4})
	s.awaitReady(3)
	return s
}

func (s *secured) audit(process string) string { return filepath.Join(s.audits, process+".audit") }

// audited returns the lines of the audit log of a process that match.
func (s *secured) audited(process string, match func(access.Entry) bool) []access.Entry {
	s.Helper()
	text, err := os.ReadFile(s.audit(process))
	if err != nil {
		s.Fatal(err)
	}
	var list []access.Entry
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the process is writing this line
		}
		var e access.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.Fatalf("audit log of %s: %v in %q", process, err, line)
		}
		if match(e) {
			list = append(list, e)
		}
	}
	return list
}

// certificate issues a certificate, and returns the configuration of a client that checks the
// host names of servers, as command lines and job services do.
func (s *secured) certificate(role identity.Role, name string) *tls.Config {
	s.Helper()
	files, err := s.fleet.Issue(role, name)
	if err != nil {
		s.Fatal(err)
	}
	return clientOf(s.T, files)
}

func clientOf(t *testing.T, files certs.Files) *tls.Config {
	t.Helper()
	config, err := transport.ClientConfig(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// lenient returns the configuration of a client that accepts every server, so that only the
// server can reject the connection.
func lenient(t *testing.T, files certs.Files) *tls.Config {
	t.Helper()
	config := clientOf(t, files)
	config.InsecureSkipVerify = true
	return config
}

// dial connects to a listener with a certificate.
func (s *secured) dial(address string, security *tls.Config) *grpc.ClientConn {
	s.Helper()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(credentials.NewTLS(security)),
		grpc.WithDisableRetry())
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	return conn
}

// port is a listener of a process.
type port struct {
	process *child.Process
	kind    access.Listener
	// option is the name of the listener in logs.
	option, address string
}

func (p port) String() string { return p.process.Name + " " + p.option }

// ports returns the listeners of all processes.
func (w *world) ports() []port {
	var list []port
	for kind, processes := range w.fleet.Processes() {
		for _, p := range processes {
			a := p.Addresses()
			switch kind {
			case model.ServiceGateway:
				list = append(list, port{p, access.Public, "--listen", a.Listen},
					port{p, access.Agents, "--agents-listen", a.Agents},
					port{p, access.Internal, "--internal-listen", a.Internal})
			case "agents":
				list = append(list, port{p, access.Agent, "--listen", a.Listen})
			default:
				list = append(list, port{p, access.Service, "--listen", a.Listen})
			}
			if a.HTTP != "" && a.HTTP != a.Listen {
				list = append(list, port{p, access.Operations, "--http-listen", a.HTTP})
			}
		}
	}
	return list
}

// On a cluster that requires TLS everywhere, including etcd, Berth works as in plain text,
// and every caller has only the rights of its identity.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := startSecured(t)
	sub := func(name string, play func(*secured)) {
		t.Run(name, func(t *testing.T) {
			own := *s.world
			own.T = t
			play(&secured{&own, s.audits})
		})
	}
	sub("a gang runs and ends", (*secured).gangRuns)
	sub("a job service uses REST", (*secured).restOfJobService)
	sub("every port rejects others", (*secured).everyPort)
	sub("a certificate of a wrong role", (*secured).wrongRoles)
	sub("an agent can do nothing on other ports", (*secured).agentElsewhere)
	sub("an agent acts for another executor", (*secured).foreignExecutor)
	sub("a stolen certificate of an agent", (*secured).stolenCertificate)
	sub("an agent names the address of another agent", (*secured).foreignAddress)
	sub("certificates expire", (*secured).expire)
	sub("the leader is killed", (*secured).failover)
	s.quiesce()
}

func (s *secured) gangRuns() {
	gate := filepath.Join(s.TempDir(), "gate")
	gang := shell("gang", "real", 2, `until [ -e "$GATE" ]; do sleep 0.02; done`)
	gang.Task.Env = map[string]string{"GATE": gate}
	gang.Constraints = &berthv1.Constraints{Sku: "host"}
	simulated := &berthv1.Reservation{Job: "gang", Stage: "simulated", Count: 8,
		Constraints: &berthv1.Constraints{Sku: "sim"}}
	s.upsert(gang)
	s.upsert(simulated)
	s.awaitRunning(gang, 2)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		s.Fatal(err)
	}
	s.await(gang, berthv1.Reservation_COMPLETED)
	s.awaitRunning(simulated, 8)
	s.cancel(simulated)
	s.await(simulated, berthv1.Reservation_CANCELLED)
}

// A job service may act for its own jobs only, with a certificate and with a bearer token.
func (s *secured) restOfJobService() {
	anonymous, err := transport.ClientConfig("", "", filepath.Join(s.fleet.CertsDir(), certs.AuthorityCert))
	if err != nil {
		s.Fatal(err)
	}
	bearer := newTLSWeb(s.T, s.fleet.Gateway(), anonymous)
	bearer.header = []string{"Authorization", "Bearer " + trainToken}
	for name, web := range map[string]*web{
		"certificate": newTLSWeb(s.T, s.fleet.Gateway(), s.certificate(identity.Job, "train")), "token": bearer,
	} {
		path := "/v1/jobs/train-" + name + "/stages/s/reservation"
		if r := web.reservation("PUT", path, `{"count": 2, "constraints": {"sku": "sim"}}`); r.GetCount() != 2 {
			s.Errorf("%s: %v", name, r)
		}
		if status, reason, _ := web.refused("PUT", "/v1/jobs/other/stages/s/reservation", `{"count": 2}`); status !=
			http.StatusForbidden || reason != "PERMISSION_DENIED" {
			s.Errorf("%s: a foreign job: %d %s", name, status, reason)
		}
		if status, body := web.call("DELETE", path, ""); status != http.StatusOK {
			s.Errorf("%s: cancel: %d %s", name, status, body)
		}
		caller := "berth://default/job/train"
		changes := s.audited("gateway-0", func(e access.Entry) bool {
			return e.Caller == caller && e.Outcome == "OK" && strings.HasPrefix(e.Object, "train-"+name)
		})
		if len(changes) != 2 || changes[0].Revision == 0 || changes[1].Revision <= changes[0].Revision {
			s.Errorf("%s: audit log: %+v", name, changes)
		}
	}
	status, body := newTLSWeb(s.T, s.fleet.Gateway(), anonymous).call("GET", "/v1/executors", "")
	if status != http.StatusForbidden || !strings.Contains(body, "has no certificate and no bearer token") {
		s.Errorf("without certificate and token: %d %s", status, body)
	}
}

// send sends a request over a connection, in plain text or encrypted. It returns the local
// address of the connection, and whether the server answered the request.
func (w *world) send(p port, security *tls.Config) (local string, answered bool) {
	w.Helper()
	c, err := net.Dial("tcp", p.address)
	if err != nil {
		w.Fatal(err)
	}
	defer c.Close()
	local = c.LocalAddr().String()
	if security != nil {
		c = tls.Client(c, security)
	}
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		w.Fatal(err)
	}
	if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: berth\r\n\r\n"); err != nil {
		return local, false
	}
	var answer [12]byte // enough for the status of HTTP
	n, _ := io.ReadFull(c, answer[:])
	return local, n > 0 && string(answer[:]) != "HTTP/1.1 400" // the hint to use https://
}

// Every port of every process rejects plain text and invalid certificates. The process logs
// the reason, and its audit log has one line.
func (s *secured) everyPort() {
	foreign, err := certs.Init(s.TempDir(), time.Hour)
	if err != nil {
		s.Fatal(err)
	}
	own, err := certs.Open(s.fleet.CertsDir())
	if err != nil {
		s.Fatal(err)
	}
	issue := func(a *certs.Authority, cluster, name string, valid time.Duration) *tls.Config {
		files, err := a.Issue(identity.Identity{Cluster: cluster, Role: identity.Operator, Name: name}, nil, valid)
		if err != nil {
			s.Fatal(err)
		}
		return lenient(s.T, files)
	}
	rejected := map[string]*tls.Config{
		"the connection is in plain text":  nil,
		"is not signed by an authority":    issue(foreign, fleet.Cluster, "foreign", time.Hour),
		"is not valid at this time":        issue(own, fleet.Cluster, "expired", -time.Minute),
		"is for another cluster":           issue(own, "other", "elsewhere", time.Hour),
		"client didn't provide a certific": {InsecureSkipVerify: true},
	}
	for _, p := range s.ports() {
		optional := p.kind&(access.Public|access.Operations) != 0
		for reason, security := range rejected {
			if security != nil && security.Certificates == nil && optional {
				continue // the certificate is optional on this port
			}
			local, answered := s.send(p, security)
			if answered {
				s.Errorf("%v: answered, want a rejection because %q", p, reason)
				continue
			}
			// Connections to different ports may have the same local address.
			text := "listener=" + p.option + " peer=" + local
			until(s.T, func() string {
				if line := logged(p.process, text); !strings.Contains(line, "rejected a connection") ||
					!strings.Contains(line, reason) || strings.Count(line, "\n") != 1 {
					return fmt.Sprintf("%v: log about %s: %q, want one line with %q", p, local, line, reason)
				}
				lines := s.audited(p.process.Name, func(e access.Entry) bool {
					return e.Peer == local && e.Listener == p.option
				})
				if len(lines) != 1 || lines[0].Outcome != "TLS_REJECTED" || !strings.Contains(lines[0].Message, reason) {
					return fmt.Sprintf("%v: audit log: %+v", p, lines)
				}
				return ""
			})
		}
	}
}

// A process whose certificate expires is not ready until the files are replaced, says why, and is a finding
// of the gateways that still reach it.
func (s *secured) expire() {
	authority, err := certs.Open(s.fleet.CertsDir())
	if err != nil {
		s.Fatal(err)
	}
	issue := func(service string, valid time.Duration) certs.Files {
		role := identity.Service
		if service == "gateway" {
			role = identity.Gateway
		}
		id := identity.Identity{Cluster: fleet.Cluster, Role: role, Name: "expires-" + service}
		files, err := authority.Issue(id, nil, valid)
		if err != nil {
			s.Fatal(err)
		}
		return files
	}
	etcd := certs.FilesOf(filepath.Join(s.fleet.CertsDir(), "etcd"), identity.Service, "berth")
	begin := func(service string, args ...string) *child.Process {
		own := issue(service, 8*time.Second)
		p := child.New("expires-"+service, s.binary, s.dir, nil, append([]string{service, "--replica", "expires-" + service,
			"--etcd-endpoints", strings.Join(s.fleet.Etcd(), ","), "--etcd-cert", etcd.Cert, "--etcd-key", etcd.Key,
			"--etcd-ca", etcd.CA, "--tls-cert", own.Cert, "--tls-key", own.Key, "--tls-ca", own.CA}, args...)...)
		if err := p.Start(s.ctx, "--listen", "--http-listen"); err != nil {
			s.Fatal(err)
		}
		s.Cleanup(p.Kill)
		return p
	}
	processes := map[string]*child.Process{}
	options := []string{"--agents-listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"}
	for _, service := range model.Services {
		processes[service] = begin(service, "--gateways", s.fleet.GatewayProcess(0).Addresses().Internal)
		options = append(options, "--"+service, s.fleet.Replica(service, 0).Addresses().Listen+","+
			s.fleet.Replica(service, 1).Addresses().Listen+","+processes[service].Addresses().Listen)
	}
	processes["gateway"] = begin("gateway", options...)
	operator := lenient(s.T, certs.FilesOf(s.fleet.CertsDir(), identity.Operator, "fleet"))
	for service, p := range processes {
		file := certs.FilesOf(s.fleet.CertsDir(), identity.Service, "expires-"+service).Cert
		if service == "gateway" {
			file = certs.FilesOf(s.fleet.CertsDir(), identity.Gateway, "expires-"+service).Cert
		}
		reason := "the certificate in " + file + " expired at "
		newTLSWeb(s.T, p.Addresses().HTTP, operator).expect("/readyz", http.StatusServiceUnavailable, `"ready":false`, reason)
		awaitLog(s.T, p, "level=WARN", `msg="not ready"`, reason)
		if service == "gateway" {
			continue
		}
		front := newTLSWeb(s.T, processes["gateway"].Addresses().Listen, operator)
		until(s.T, func() string {
			if _, text := front.call("GET", "/v1/findings", ""); !strings.Contains(text, "REPLICA_CUT_OFF") ||
				!strings.Contains(text, reason) {
				return "no finding about " + service + ": " + text
			}
			return ""
		})
	}
	for service, p := range processes {
		issue(service, time.Hour)
		newTLSWeb(s.T, p.Addresses().HTTP, operator).expect("/readyz", http.StatusOK, `"ready":true`)
	}
}

// logged returns the lines of a process's log that contain a text.
func logged(p *child.Process, text string) string {
	var found strings.Builder
	log, _ := os.ReadFile(p.LogFile())
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, text+" ") {
			found.WriteString(line)
		}
	}
	return found.String()
}

// A certificate of a wrong role opens the connection, and the call fails with the role that
// is missing. The audit log of the process has one line.
func (s *secured) wrongRoles() {
	anonymous, err := transport.ClientConfig("", "", filepath.Join(s.fleet.CertsDir(), certs.AuthorityCert))
	if err != nil {
		s.Fatal(err)
	}
	cases := map[access.Listener]struct {
		role   identity.Role
		method string
		want   string
	}{
		access.Public:   {identity.Agent, berthv1.Executors_ListExecutors_FullMethodName, "autoscaler, viewer or operator"},
		access.Agents:   {identity.Operator, controlv1.Agents_Register_FullMethodName, "agent"},
		access.Internal: {identity.Agent, controlv1.Dispatch_ReportWorkers_FullMethodName, "service"},
		access.Service:  {identity.Agent, controlv1.Replicas_Resign_FullMethodName, "gateway"},
		access.Agent:    {identity.Gateway, controlv1.Executor_SubmitTask_FullMethodName, "service"},
	}
	for n, p := range s.ports() {
		name := fmt.Sprintf("wrong-%d", n)
		if p.kind == access.Operations {
			s.operations(p, anonymous, name)
			continue
		}
		c := cases[p.kind]
		conn := s.dial(p.address, s.certificate(c.role, name))
		err := conn.Invoke(s.ctx, c.method, &emptypb.Empty{}, &emptypb.Empty{})
		if status.Code(err) != codes.PermissionDenied || !strings.Contains(status.Convert(err).Message(),
			fmt.Sprintf("requires the role %s; the caller berth://default/%v/%s has the role %v", c.want, c.role, name,
				c.role)) {
			s.Errorf("%v: %v, want the missing role %s", p, err, c.want)
		}
		s.denied(p, name, strings.TrimPrefix(c.method, "/"))
		if p.kind == access.Public {
			err := s.dial(p.address, anonymous).Invoke(s.ctx, c.method, &emptypb.Empty{}, &emptypb.Empty{})
			if status.Code(err) != codes.PermissionDenied ||
				!strings.Contains(err.Error(), "the caller has no certificate and no bearer token") {
				s.Errorf("%v without a certificate: %v", p, err)
			}
		}
	}
}

// operations checks a port for health and metrics: everybody may request the health, and
// viewers and operators may read the metrics.
func (s *secured) operations(p port, anonymous *tls.Config, name string) {
	s.Helper()
	agent := s.certificate(identity.Agent, name)
	for _, c := range []struct {
		security *tls.Config
		path     string
		want     int
	}{
		{anonymous, "/healthz", http.StatusOK}, {agent, "/healthz", http.StatusOK},
		{anonymous, "/metrics", http.StatusForbidden}, {agent, "/metrics", http.StatusForbidden},
		{s.certificate(identity.Viewer, "viewer"), "/metrics", http.StatusOK},
		{s.certificate(identity.Operator, "operator"), "/metrics", http.StatusOK},
	} {
		got, body := newTLSWeb(s.T, p.address, c.security).call("GET", c.path, "")
		if got != c.want || got == http.StatusForbidden && !strings.Contains(body, "requires the role viewer or operator") {
			s.Errorf("%v: %s: %d %.200s, want %d", p, c.path, got, body, c.want)
		}
	}
	s.denied(p, name, "GET /metrics")
}

// denied waits for the only line in the audit log about an agent, a gateway or an operator
// with a name.
func (s *secured) denied(p port, name, method string) {
	s.Helper()
	until(s.T, func() string {
		lines := s.audited(p.process.Name, func(e access.Entry) bool { return strings.HasSuffix(e.Caller, "/"+name) })
		if len(lines) != 1 || lines[0].Outcome != "PermissionDenied" || lines[0].Reason != "PERMISSION_DENIED" ||
			lines[0].Method != method || !strings.Contains(lines[0].Message, "requires the role") {
			return fmt.Sprintf("%v: audit log of %s: %+v", p, name, lines)
		}
		return ""
	})
}

// The certificate of an agent opens no method of the public port, of the internal port and of
// the services, except health checks, reflection, and the call that tells every caller its role.
func (s *secured) agentElsewhere() {
	agent := s.certificate(identity.Agent, "host")
	methods, _ := access.Methods()
	for _, p := range s.ports() {
		if p.kind&(access.Public|access.Internal|access.Service) == 0 {
			continue
		}
		conn := s.dial(p.address, agent)
		for _, method := range methods {
			if !strings.HasPrefix(method, "/") || strings.HasPrefix(method, "/grpc.") ||
				method == berthv1.Callers_GetCaller_FullMethodName {
				continue
			}
			err := conn.Invoke(s.ctx, method, &emptypb.Empty{}, &emptypb.Empty{})
			if c := status.Code(err); c != codes.PermissionDenied && c != codes.Unimplemented {
				s.Errorf("%v: %s: %v", p, method, err)
			}
		}
	}
}

// register sends a registration to the gateway.
func (s *secured) register(conn grpc.ClientConnInterface, r *controlv1.RegisterRequest) (*controlv1.RegisterAnswer,
	error) {
	r.Resources = map[string]int64{"slots": 4}
	return controlv1.NewAgentsClient(conn).Register(s.ctx, r)
}

// heartbeat sends a heartbeat to the gateway and returns the error of the stream.
func (s *secured) heartbeat(conn grpc.ClientConnInterface, m *controlv1.HeartbeatRequest) error {
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(ctx)
	if err != nil {
		return err
	}
	_ = stream.Send(m) // Recv returns the error
	for err == nil {
		_, err = stream.Recv()
	}
	return err
}

// executor returns an executor.
func (s *secured) executor(id string) *berthv1.Executor {
	s.Helper()
	e, err := s.client.Executor(s.ctx, id)
	if err != nil {
		s.Fatal(err)
	}
	return e
}

// unchanged checks that an executor is READY and has the registration of before.
func (s *secured) unchanged(before *berthv1.Executor) {
	s.Helper()
	now := s.executor(before.GetId())
	if now.GetIncarnation() != before.GetIncarnation() || now.GetAddress() != before.GetAddress() ||
		now.GetState() != berthv1.Executor_READY {
		s.Errorf("the executor changed from\n%v\nto\n%v", before, now)
	}
}

// An agent registers and sends heartbeats for the executor of another agent.
func (s *secured) foreignExecutor() {
	before := s.executor("sim-0")
	conn := s.dial(s.fleet.AgentsGateways()[0], s.certificate(identity.Agent, "host"))
	_, err := s.register(conn, &controlv1.RegisterRequest{Id: "sim-0", Address: "127.0.0.1:1", Sku: "stolen", Nonce: "n"})
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `own executor, got "sim-0"`) {
		s.Errorf("registration for another executor: %v", err)
	}
	err = s.heartbeat(conn, &controlv1.HeartbeatRequest{Id: "sim-0", Incarnation: before.GetIncarnation(), Nonce: "n",
		Report: &controlv1.ExecutorReport{Executor: "sim-0", Incarnation: before.GetIncarnation(), Sequence: 1 << 40,
			Complete: true}})
	if status.Code(err) != codes.PermissionDenied {
		s.Errorf("heartbeat for another executor: %v", err)
	}
	s.unchanged(before)
}

// While an agent runs, another process with its certificate cannot take its executor.
func (s *secured) stolenCertificate() {
	before := s.executor("host")
	thief := s.dial(s.fleet.AgentsGateways()[0], s.certificate(identity.Agent, "host"))
	_, err := s.register(thief, &controlv1.RegisterRequest{Id: "host", Address: "127.0.0.1:1", Sku: "host", Nonce: "thief",
		Secret: "thief"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), `"host" belongs to another agent`) {
		s.Errorf("registration with a stolen certificate: %v", err)
	}
	err = s.heartbeat(thief, &controlv1.HeartbeatRequest{Id: "host", Incarnation: before.GetIncarnation(), Nonce: "thief"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "the nonce differs") {
		s.Errorf("heartbeat with a stolen certificate: %v", err)
	}
	s.unchanged(before)
}

// An agent registers with the address of another agent. It gets none of the other agent's
// start requests, the other agent gets none of its requests, and the workers of the other
// agent start.
func (s *secured) foreignAddress() {
	host := s.executor("host")
	conn := s.dial(s.fleet.AgentsGateways()[0], s.certificate(identity.Agent, "liar"))
	registered, err := s.register(conn, &controlv1.RegisterRequest{Id: "liar", Address: host.GetAddress(), Sku: "liar",
		Nonce: "n", Secret: "s"})
	if err != nil {
		s.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.ctx)
	beats := make(chan struct{})
	go func() { defer close(beats); s.beat(ctx, conn, registered, "liar") }()
	defer func() { stop(); <-beats }()
	s.awaitReady(4)

	dir := s.TempDir()
	lie := shell("liar", "s", 1, `echo started > "$DIR/started"`)
	lie.OnAssignmentFailure, lie.Constraints = berthv1.OnAssignmentFailure_NOTIFY, &berthv1.Constraints{Sku: "liar"}
	lie.Task.Env, lie.MaxAttempts = map[string]string{"DIR": dir}, proto.Int32(1)
	lie = s.upsert(lie)
	for i := range 3 {
		own := shell("host", fmt.Sprintf("s%d", i), 4, "exec sleep 3600")
		own.Constraints = &berthv1.Constraints{Sku: "host"}
		s.upsert(own)
		s.awaitRunning(own, 4)
		s.cancel(own)
		s.await(own, berthv1.Reservation_CANCELLED)
	}
	s.awaitWorkers("liar", berthv1.Event_WORKER_FAILED, 1)
	if last := s.lastOf(lie.GetUid(), 0); !strings.Contains(last.LastError.String(),
		"is berth://default/agent/host, not the agent of") {
		s.Errorf("the start on the executor of the liar: %+v", last)
	}
	if _, err := os.Stat(filepath.Join(dir, "started")); err == nil {
		s.Error("the agent started a worker of another executor")
	}
	s.unchanged(host)
}

// beat sends heartbeats for an executor until ctx ends.
func (s *secured) beat(ctx context.Context, conn grpc.ClientConnInterface, r *controlv1.RegisterAnswer, id string) {
	stream, err := controlv1.NewHeartbeatsClient(conn).Heartbeat(ctx)
	if err != nil {
		s.Error(err)
		return
	}
	for sequence := int64(1); ; sequence++ {
		_ = stream.Send(&controlv1.HeartbeatRequest{Id: id, Incarnation: r.GetIncarnation(), Nonce: "n",
			Report: &controlv1.ExecutorReport{Sequence: sequence, Complete: true}})
		select {
		case <-ctx.Done():
			return
		case <-time.After(r.GetHeartbeatEvery().AsDuration() / 2):
		}
	}
}

// A killed leader is replaced at once, because a standby can probe it over TLS.
func (s *secured) failover() {
	leader, term := s.leader(model.ServiceRegistry)
	began := time.Now()
	leader.Kill()
	s.nextLeader(model.ServiceRegistry, leader, term)
	if took := time.Since(began); took > fastFailover {
		s.Errorf("failover took %v with a TTL of %v", took, longest)
	}
	r := &berthv1.Reservation{Job: "after", Stage: "s", Count: 2, Constraints: &berthv1.Constraints{Sku: "sim"}}
	s.upsert(r)
	s.await(r, berthv1.Reservation_ACTIVE)
	s.cancel(r)
	s.restart(leader)
}
