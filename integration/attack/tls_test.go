package attack

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/access"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

// rejectedCall is a call of an attack. With TLS it has no effect, and the process that
// rejects it writes one line to its audit log.
type rejectedCall struct {
	name    string
	process string // the process that the call reaches
	address string
	method  string
	call    func(ctx context.Context, conn grpc.ClientConnInterface) error
}

// TestAttacksWithTLS sends the calls of the attacks to a fleet with TLS: in plain text, with
// a certificate of a foreign authority, and with a certificate of the cluster whose role does
// not permit the call.
func TestAttacksWithTLS(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	dir := t.TempDir()
	flags := map[string][]string{}
	for _, name := range []string{"gateway-0", "registry-0", "executor-state-0", "assigner-0", "agent"} {
		flags[name] = []string{"--audit-log", filepath.Join(dir, name+".audit")}
	}
	f, err := fleet.Start(ctx, fleet.Config{Binary: binary, Dir: dir, Replicas: 1, TLS: transport.Require, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.StartAgent(ctx, fleet.Agent{ID: "host", SKU: "host", Slots: 4,
		Allow: []string{"/bin/sleep"}}); err != nil {
		t.Fatal(err)
	}
	host, err := f.Client().Executor(ctx, "host")
	for ; err != nil || host.GetState() != berthv1.Executor_READY; host, err = f.Client().Executor(ctx, "host") {
		if err := store.Sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatal("the agent is not ready")
		}
	}
	attackers := map[string]credentials.TransportCredentials{
		"plain text":        insecure.NewCredentials(),
		"foreign authority": credentials.NewTLS(thief(t, foreignAuthority(t))),
		"another role":      credentials.NewTLS(thiefIn(t, f)),
	}
	for _, c := range rejectedCalls(t, ctx, f, host) {
		for attacker, creds := range attackers {
			log := filepath.Join(dir, c.process+".audit")
			before := len(auditLines(t, log))
			conn, err := grpc.NewClient("passthrough:///"+c.address, grpc.WithTransportCredentials(creds))
			if err != nil {
				t.Fatal(err)
			}
			err = c.call(ctx, conn)
			conn.Close()
			code, outcome := codes.Unavailable, "TLS_REJECTED"
			if attacker == "another role" {
				code, outcome = codes.PermissionDenied, codes.PermissionDenied.String()
			}
			if status.Code(err) != code {
				t.Errorf("%s with %s: got %v, want %v", c.name, attacker, err, code)
				continue
			}
			lines := auditLines(t, log)
			for ; len(lines) == before; lines = auditLines(t, log) {
				if err := store.Sleep(ctx, 5*time.Millisecond); err != nil {
					t.Fatalf("%s with %s: no audit line", c.name, attacker)
				}
			}
			lines = lines[before:]
			if len(lines) != 1 || lines[0].Outcome != outcome || lines[0].Message == "" ||
				outcome != "TLS_REJECTED" && lines[0].Method != c.method {
				t.Errorf("%s with %s: audit lines %+v", c.name, attacker, lines)
			}
		}
	}
	// A web page has no certificate and no token.
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true}}
	res, err := web.Post("https://"+f.Gateway()+"/v1/executors/host:drain", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("a page that drains an executor: %s", res.Status)
	}
	stolenCertificateAtEtcd(t, ctx, f)
	now, err := f.Client().Executor(ctx, "host")
	if err != nil || now.GetState() != berthv1.Executor_READY || now.GetIncarnation() != host.GetIncarnation() {
		t.Errorf("the executor changed: %v, %v", now, err)
	}
}

// rejectedCalls returns calls of the attacks A1, A2, A4, A8 and A9, and calls that make a
// leader resign.
func rejectedCalls(t *testing.T, ctx context.Context, f *fleet.Fleet, host *berthv1.Executor) []rejectedCall {
	t.Helper()
	cycle := func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := controlv1.NewInventoryClient(conn).TryAllocateAndLease(ctx,
			&controlv1.CycleRequest{Term: math.MaxInt64, Cycle: 1})
		return err
	}
	report := func(ctx context.Context, conn grpc.ClientConnInterface) error {
		_, err := controlv1.NewDispatchClient(conn).ReportWorkers(ctx, &controlv1.ReportWorkersRequest{
			Reports: []*controlv1.ExecutorReport{{Executor: "host", Incarnation: host.GetIncarnation(), Complete: true}}})
		return err
	}
	const (
		inventory = "berth.control.v1.Inventory/TryAllocateAndLease"
		dispatch  = "berth.control.v1.Dispatch/ReportWorkers"
	)
	at := map[string]string{}
	for _, service := range fleet.Services {
		p, _, err := f.Leader(ctx, service)
		if err != nil {
			t.Fatal(err)
		}
		at[service] = p.Addresses().Listen
	}
	public, agents, internal := f.Gateway(), f.AgentsGateways()[0], f.InternalGateways()[0]
	return []rejectedCall{
		{"A1 on the internal listener", "gateway-0", internal, inventory, cycle},
		{"A1 at executor-state", "executor-state-0", at[model.ServiceExecutorState], inventory, cycle},
		{"A2 on the internal listener", "gateway-0", internal, dispatch, report},
		{"A2 at the assigner", "assigner-0", at[model.ServiceAssigner], dispatch, report},
		{"A2 a registration", "gateway-0", agents, "berth.control.v1.Agents/Register",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := controlv1.NewAgentsClient(conn).Register(ctx, &controlv1.RegisterRequest{Id: "host",
					Address: "127.0.0.1:1", Nonce: "thief", Secret: "thief"})
				return err
			}},
		{"A4 a start request", "agent", host.GetAddress(), "berth.control.v1.Executor/SubmitTask",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := controlv1.NewExecutorClient(conn).SubmitTask(ctx, &controlv1.SubmitTaskRequest{Term: math.MaxInt64,
					Executor: "host", Incarnation: host.GetIncarnation(), Task: &berthv1.Task{Command: "/bin/sleep"}})
				return err
			}},
		{"A8 a disable request", "gateway-0", public, "berth.v1.Executors/DisableExecutors",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := berthv1.NewExecutorsClient(conn).DisableExecutors(ctx, &berthv1.DisableExecutorsRequest{
					RequestId: "flood", Selector: &berthv1.ExecutorSelector{Ids: []string{"unknown"}}})
				return err
			}},
		{"A9 a SKU", "gateway-0", public, "berth.v1.Catalog/PutSku",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := berthv1.NewCatalogClient(conn).PutSku(ctx, &berthv1.PutSkuRequest{Sku: &berthv1.Sku{Name: "flood"}})
				return err
			}},
		{"A9 a reservation of another job", "gateway-0", public, "berth.v1.Reservations/UpsertReservation",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := berthv1.NewReservationsClient(conn).UpsertReservation(ctx, &berthv1.UpsertReservationRequest{
					Reservation: &berthv1.Reservation{Job: "flood", Stage: "s", Count: 1}})
				return err
			}},
		{"a resignation", "registry-0", at[model.ServiceRegistry], "berth.control.v1.Replicas/Resign",
			func(ctx context.Context, conn grpc.ClientConnInterface) error {
				_, err := controlv1.NewReplicasClient(conn).Resign(ctx, &controlv1.ResignRequest{Term: 1})
				return err
			}},
	}
}

// thief returns the configuration of a job service whose certificate an authority has
// signed. It does not check the server, because the server must reject the thief.
func thief(t *testing.T, authority *certs.Authority) *tls.Config {
	t.Helper()
	files, err := authority.Issue(identity.Identity{Cluster: fleet.Cluster, Role: identity.Job, Name: "thief"}, nil,
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
}

func foreignAuthority(t *testing.T) *certs.Authority {
	t.Helper()
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func thiefIn(t *testing.T, f *fleet.Fleet) *tls.Config {
	t.Helper()
	authority, err := certs.Open(f.CertsDir())
	if err != nil {
		t.Fatal(err)
	}
	return thief(t, authority)
}

// stolenCertificateAtEtcd checks that the certificate of an agent does not open etcd.
func stolenCertificateAtEtcd(t *testing.T, ctx context.Context, f *fleet.Fleet) {
	t.Helper()
	agent := certs.FilesOf(f.CertsDir(), identity.Agent, "host")
	stolen, err := tls.LoadX509KeyPair(agent.Cert, agent.Key)
	if err != nil {
		t.Fatal(err)
	}
	config, err := f.EtcdConfig()
	if err != nil {
		t.Fatal(err)
	}
	config.TLS.Certificates = []tls.Certificate{stolen}
	s, err := store.Dial(config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, _, err := s.Get(ctx, "/berth"); err == nil {
		t.Error("the certificate of an agent opens etcd")
	}
}

// auditLines returns the lines of an audit log.
func auditLines(t *testing.T, name string) (lines []access.Entry) {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for scan := bufio.NewScanner(file); scan.Scan(); {
		var e access.Entry
		if err := json.Unmarshal(scan.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		if e.Outcome != codes.OK.String() {
			lines = append(lines, e)
		}
	}
	return lines
}
