package rpc_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// The cause says in a few words why a process did not answer.
func TestCause(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	web, secure := httptest.NewServer(page), httptest.NewUnstartedServer(page)
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(func() { web.Close(); secure.Close() })
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	replica := serve(t, "", rpc.ServerOptions{}, named("a"))
	of := func(s *httptest.Server) string { return s.Listener.Addr().String() }
	trusts := x509.NewCertPool()
	trusts.AddCert(secure.Certificate())
	known, unknown := &tls.Config{RootCAs: trusts, MinVersion: tls.VersionTLS12}, &tls.Config{MinVersion: tls.VersionTLS12}
	for _, c := range []struct {
		name, address string
		with          *tls.Config
		want          string
	}{
		{"nobody listens", hold(t), nil, "connection refused"},
		{"nobody listens, with TLS", hold(t), known, "connection refused"},
		{"no such host", "no-such-host.invalid:7101", nil, "no such host|the name cannot be resolved"},
		{"accepts and sends nothing", silent.Addr().String(), nil, "no answer in time"},
		{"a web server", of(web), nil, "it is another server"},
		{"a web server with TLS", of(secure), known, "it is another server"},
		{"TLS required", of(secure), nil, "it closed the connection; it may require TLS|it is another server"},
		{"no TLS", replica.addr, known, "TLS: it answers in plain text|TLS: it does not answer the handshake"},
		{"unknown authority", of(secure), unknown, "TLS: certificate signed by unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := rpc.Dial([]string{c.address}, rpc.DialOptions{FailFast: true, TLS: c.with})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			patience := 20 * time.Second
			if c.address == silent.Addr().String() {
				patience = 200 * time.Millisecond
			}
			_, err = controlv1.NewReplicasClient(conn).GetReplica(within(t, patience), &controlv1.GetReplicaRequest{})
			got := rpc.Cause(err)
			for want := range strings.SplitSeq(c.want, "|") {
				if got == want {
					return
				}
			}
			t.Errorf("got %q of %v, want %q", got, err, c.want)
		})
	}

	conn, err := rpc.Dial([]string{replica.addr}, rpc.DialOptions{FailFast: true})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = healthpb.NewHealthClient(conn).Check(within(t, time.Minute), &healthpb.HealthCheckRequest{Service: "none"})
	expired := status.Error(codes.Unavailable, "error reading server preface: remote error: tls: expired certificate")
	if got := rpc.Cause(expired); got != "TLS: it refused the certificate of the caller: expired or not valid yet" {
		t.Errorf("a certificate that is not valid now: %q", got)
	}
	large := status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: http2: frame too large"`)
	if got := rpc.Cause(large); got != "it speaks another protocol, such as TLS or plain HTTP" {
		t.Errorf("another protocol: %q", got)
	}
	if got := rpc.Cause(fmt.Errorf("read: %w", context.DeadlineExceeded)); got != "no answer in time" {
		t.Errorf("a deadline: %q", got)
	}
	if got := rpc.Cause(err); status.Code(err) != codes.NotFound || got != "unknown service" {
		t.Errorf("another error: %q of %v", got, err)
	}
}

// The error names the addresses that do not answer. It says that there is no leader only if a
// replica says so.
func TestReachFault(t *testing.T) {
	a := rpc.Unreached{Address: "a:1", Cause: "connection refused"}
	b := rpc.Unreached{Address: "b:1", Cause: "no such host"}
	for want, r := range map[string]rpc.Reach{
		"no replica of registry has answered yet":                                          {},
		"no replica of registry answers: a:1 (connection refused)":                         {Unreached: []rpc.Unreached{a}},
		"no replica of registry answers: a:1 (connection refused), b:1 (no such host)":     {Unreached: []rpc.Unreached{a, b}},
		"registry has no leader":                                                           {Answered: 3},
		"registry has no leader; no answer from b:1 (no such host)":                        {Answered: 2, Unreached: []rpc.Unreached{b}},
		"the leader of registry did not answer in time":                                    {Answered: 3, Leads: true},
		"the leader of registry did not answer in time; no answer from b:1 (no such host)": {1, true, []rpc.Unreached{b}},
	} {
		f := r.Fault("registry")
		if f.Message != want || f.Kind != fault.Unavailable || f.Reason != fault.ReasonUnavailable ||
			f.Meta["service"] != "registry" {
			t.Errorf("got %v %v, want %q", f, f.Meta, want)
		}
	}
}
