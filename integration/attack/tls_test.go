package attack

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/integration/attack/flood"
	"berth.dev/pkg/access"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
	"berth.dev/pkg/transport"
)

// attacker is a caller that may make none of the calls of the attacks.
type attacker struct {
	name   string
	tls    *tls.Config // nil in plain text
	member bool        // has a certificate of the cluster
}

// tlsTarget is a fleet with TLS, whose processes write audit logs.
type tlsTarget struct {
	*testing.T
	ctx       context.Context
	fleet     *fleet.Fleet
	dir       string
	attackers []attacker
	lines     map[string]int // the number of lines about rejections that each process must have written
}

// TestAttacksWithTLS sends the calls of the attacks to a fleet with TLS: in plain text, with
// a certificate of a foreign authority, and with a certificate of the cluster whose role does
// not permit the call. The calls are rejected, each with one line in an audit log, and
// change nothing.
func TestAttacksWithTLS(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	dir := t.TempDir()
	flags := map[string][]string{}
	for _, name := range []string{"gateway-0", "registry-0", "executor-state-0", "assigner-0", string(host)} {
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
	executor, err := f.Client().Executor(ctx, "host")
	for ; err != nil || executor.GetState() != berthv1.Executor_READY; executor, err = f.Client().Executor(ctx, "host") {
		if err := store.Sleep(ctx, 20*time.Millisecond); err != nil {
			t.Fatal("the agent is not ready")
		}
	}
	w := &tlsTarget{T: t, ctx: ctx, fleet: f, dir: dir, lines: map[string]int{}, attackers: []attacker{
		{name: "plain text"},
		{name: "a foreign authority", tls: thief(t, foreignAuthority(t))},
		{name: "another role", tls: thiefIn(t, f), member: true},
	}}
	before := w.state()
	for _, c := range attackCalls {
		for _, a := range w.attackers {
			for _, at := range slices.Concat(c.at, c.misdirected) {
				w.attack(c, a, at, executor)
			}
		}
	}
	// An operator's browser may have the operator's certificate.
	browsers := append(slices.Clone(w.attackers),
		attacker{"an operator's certificate", f.ClientTLS(identity.Gateway), true})
	for _, c := range webCalls {
		for _, a := range browsers {
			w.browse(c, a)
		}
	}
	w.attackEtcd()
	for process, want := range w.lines {
		if lines := auditLines(t, w.log(process)); len(lines) != want {
			t.Errorf("the audit log of %s has %d lines about rejections, want %d", process, len(lines), want)
		}
	}
	if *floods { // several seconds
		w.flood()
	}
	if after := w.state(); !maps.Equal(before, after) {
		t.Errorf("the attacks changed the state from %v to %v", before, after)
	}
	// Other callers get executors.
	r := &berthv1.Reservation{Job: "after", Stage: "s", Count: 2, Constraints: &berthv1.Constraints{Sku: "host"},
		Task: sleep()}
	if _, err := f.Client().Reserve(ctx, r); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Client().WaitFor(ctx, client.KeyOf(r), berthv1.Reservation_ACTIVE); err != nil {
		t.Error(err)
	}
}

// state returns the records in etcd.
func (w *tlsTarget) state() map[string]string {
	w.Helper()
	config, err := w.fleet.EtcdConfig()
	if err != nil {
		w.Fatal(err)
	}
	s, err := store.Dial(config)
	if err != nil {
		w.Fatal(err)
	}
	defer s.Close()
	kvs, _, err := store.Range(w.ctx, s, keyspace.New(fleet.Cluster).Prefix())
	if err != nil {
		w.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range kvs {
		all[kv.Key] = string(kv.Value)
	}
	return all
}

func (w *tlsTarget) log(process string) string { return filepath.Join(w.dir, process+".audit") }

// line waits for the next line about a rejection in the audit log of a process.
func (w *tlsTarget) line(what, process string) access.Entry {
	w.Helper()
	for {
		if lines := auditLines(w.T, w.log(process)); len(lines) > w.lines[process] {
			w.lines[process]++
			return lines[w.lines[process]-1]
		}
		if err := store.Sleep(w.ctx, 5*time.Millisecond); err != nil {
			w.Fatalf("%s: no audit line", what)
		}
	}
}

// send sends a call of an attack and returns its error.
func (w *tlsTarget) send(c attackCall, a attacker, address string, executor *berthv1.Executor) error {
	w.Helper()
	creds := insecure.NewCredentials()
	if a.tls != nil {
		creds = credentials.NewTLS(a.tls)
	}
	// A client that connects again is rejected again, with another line.
	var dialled atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if dialled.Swap(true) {
				return nil, errors.New("the only connection was closed")
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}))
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.ctx, deadline)
	defer cancel()
	// The answer of a call that is accepted by mistake does not matter.
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, c.method)
	if err == nil {
		err = stream.SendMsg(c.request(executor))
	}
	if err == nil || err == io.EOF { // after io.EOF, RecvMsg returns the error
		_ = stream.CloseSend() // it returns no error
		err = stream.RecvMsg(&emptypb.Empty{})
	}
	return err
}

// attack sends a call to a listener that serves the method, and checks its rejection.
func (w *tlsTarget) attack(c attackCall, a attacker, at place, executor *berthv1.Executor) {
	w.Helper()
	what := fmt.Sprintf("%s, %s with %s", c.attack, nameOf(at, c.method), a.name)
	process, address, err := at.of(w.ctx, w.fleet)
	if err != nil {
		w.Fatal(err)
	}
	want := access.Entry{Outcome: tlsRejected}
	code := codes.Unavailable
	if a.member {
		code, want = codes.PermissionDenied, access.Entry{Outcome: codes.PermissionDenied.String(),
			Method: strings.TrimPrefix(c.method, "/")}
	}
	if err := w.send(c, a, address, executor); status.Code(err) != code {
		w.Errorf("%s: got %v, want %v", what, err, code)
		return
	}
	if line := w.line(what, process); line.Outcome != want.Outcome || line.Method != want.Method || line.Message == "" {
		w.Errorf("%s: the audit line is %+v", what, line)
	}
}

// browse sends a call of a web page.
func (w *tlsTarget) browse(c webCall, a attacker) {
	w.Helper()
	what := fmt.Sprintf("A10, %s with %s", c.name, a.name)
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: a.tls, DisableKeepAlives: true}}
	url, outcome, method := "https://"+w.fleet.Gateway(), tlsRejected, ""
	if a.tls == nil {
		url = "http://" + w.fleet.Gateway()
	}
	if a.member {
		outcome, method = codes.PermissionDenied.String(), c.method+" "+c.path
	}
	code, text, err := c.send(w.ctx, web, url)
	switch {
	case a.member && code == http.StatusForbidden && strings.Contains(text, "PERMISSION_DENIED"):
	case a.tls == nil && code == http.StatusBadRequest && strings.Contains(text, "this port requires TLS"):
	case a.tls != nil && !a.member && err != nil:
	default:
		w.Errorf("%s: status %d, %s, %v", what, code, text, err)
		return
	}
	if line := w.line(what, "gateway-0"); line.Outcome != outcome || line.Method != method || line.Message == "" {
		w.Errorf("%s: the audit line is %+v", what, line)
	}
}

// attackEtcd checks that etcd is open neither to the attackers nor to an agent's certificate.
func (w *tlsTarget) attackEtcd() {
	w.Helper()
	agent := certs.FilesOf(w.fleet.CertsDir(), identity.Agent, "host")
	stolen, err := tls.LoadX509KeyPair(agent.Cert, agent.Key)
	if err != nil {
		w.Fatal(err)
	}
	config, err := w.fleet.EtcdConfig()
	if err != nil {
		w.Fatal(err)
	}
	withStolen := config.TLS.Clone()
	withStolen.Certificates = []tls.Certificate{stolen}
	var writes sync.WaitGroup
	for _, a := range append(w.attackers, attacker{name: "the certificate of an agent", tls: withStolen}) {
		config.TLS = a.tls
		s, err := store.Dial(config)
		if err != nil {
			w.Fatal(err)
		}
		writes.Go(func() {
			defer s.Close()
			ctx, cancel := context.WithTimeout(w.ctx, time.Second)
			defer cancel()
			if _, err := s.Txn(ctx, store.Txn{Then: []store.Op{{Key: keyspace.New(fleet.Cluster).Prefix() + "junk",
				Value: []byte("junk")}}}); err == nil {
				w.Errorf("A6 with %s: etcd accepted the write", a.name)
			}
		})
	}
	writes.Wait()
}

// flood sends a small form of the floods of attack A7, with TLS but without a certificate and
// in plain text. The agents listener closes all of its connections. TestFloodsWithTLSA7 has
// the full numbers.
func (w *tlsTarget) flood() {
	w.Helper()
	before := len(auditLines(w.T, w.log("gateway-0")))
	for _, secured := range []bool{true, false} {
		rejected, served := flood.New(w.fleet.AgentsGateways()[0], secured), flood.New(w.fleet.Gateway(), secured)
		for _, err := range []error{
			rejected.Streams(200, 100), rejected.Watches(20, 10, 60_000), rejected.Headers(200, 100, 60_000),
			rejected.Unfinished(20, 10, 60_000), rejected.Resets(200, 4),
			served.Idle(30), served.Bodies(10, 64<<10), served.Heads(5, 1<<20), served.Streams(200, 100),
			served.Watches(20, 10, 60_000), served.Headers(200, 100, 60_000), served.Unfinished(20, 10, 60_000),
			served.Compressed(20, 10, 1<<20), served.Resets(200, 4), served.Handshakes(10),
		} {
			if err != nil {
				w.Errorf("A7 with TLS %t: %v", secured, err)
			}
		}
		rejected.Wait()
	}
	if lines := auditLines(w.T, w.log("gateway-0")); len(lines) == before || lines[before].Outcome != tlsRejected {
		w.Errorf("A7: the audit log has no line about a rejected connection")
	}
	checkMemory(w.T, w.fleet.GatewayProcess(0))
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

// tlsRejected is the outcome of a connection whose handshake fails.
const tlsRejected = "TLS_REJECTED"

// auditLines returns the lines of an audit log about rejections.
func auditLines(t *testing.T, name string) (lines []access.Entry) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // the process is writing this line
		}
		var e access.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if e.Outcome == codes.PermissionDenied.String() || e.Outcome == tlsRejected {
			lines = append(lines, e)
		}
	}
	return lines
}
