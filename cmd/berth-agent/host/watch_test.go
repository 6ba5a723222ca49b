package host

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
)

// secured returns the security of a process with a new certificate of an authority.
func secured(t *testing.T, authority *certs.Authority, ca string, role identity.Role, name string) *process.Secured {
	t.Helper()
	files, err := authority.Issue(identity.Identity{Cluster: "default", Role: role, Name: name}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if ca == "" {
		ca = files.CA
	}
	s, err := process.Security{TLSCert: files.Cert, TLSKey: files.Key, TLSCA: ca}.Secure("", role,
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// serve serves health checks like a listener of a gateway, and returns the address.
func serve(t *testing.T, s *process.Secured) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.ServerOptions{Log: slog.New(slog.DiscardHandler), More: s.ServerOptions(access.Agents)})
	server.SetServing("gateway", true)
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(s.Listener(l, "--agents-listen", false)) }()
	t.Cleanup(func() {
		if err := server.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		<-done
	})
	return l.Addr().String()
}

// The check of a gateway names the reason why the gateway does not serve the agent.
func TestCheckGateway(t *testing.T) {
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := process.Security{}.Secure("default", identity.Gateway, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	gateway := secured(t, authority, "", identity.Gateway, "g")
	agent := secured(t, authority, "", identity.Agent, "a")
	stranger := secured(t, foreign, "", identity.Agent, "a")
	var authorities []byte
	for _, a := range []*certs.Authority{authority, foreign} {
		files, err := a.Issue(identity.Identity{Cluster: "default", Role: identity.Agent, Name: "b"}, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(files.CA)
		if err != nil {
			t.Fatal(err)
		}
		authorities = append(authorities, text...)
	}
	both := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(both, authorities, 0o600); err != nil {
		t.Fatal(err)
	}
	forged := secured(t, foreign, both, identity.Agent, "a") // trusts the gateway, which does not trust it
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, c := range map[string]struct {
		address string
		caller  *process.Secured
		want    string
	}{
		"reachable":             {serve(t, gateway), agent, "reachable"},
		"reachable without TLS": {serve(t, plain), plain, "reachable"},
		"refused":               {closed.Addr().String(), agent, "connection refused"},
		"timeout":               {closed.Addr().String(), plain, "timed out"},
		"no such name":          {"no-such-host.invalid:1", plain, "no-such-host.invalid"},
		"TLS required":          {serve(t, gateway), plain, "if it requires TLS, set --tls-cert"},
		"no TLS":                {serve(t, plain), agent, "if it has no TLS, remove --tls-cert"},
		"unknown authority":     {serve(t, gateway), stranger, "not signed by an authority in --tls-ca"},
		"a service": {serve(t, secured(t, authority, "", identity.Service, "s")), agent,
			"has the role service, want gateway"},
		"a rejected certificate": {serve(t, gateway), forged, "may have rejected the certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if name == "timeout" {
				ctx, cancel = context.WithTimeout(t.Context(), 0)
			}
			defer cancel()
			var config *tls.Config
			if c.caller != plain {
				config = c.caller.Client(identity.Gateway)
			}
			if got := checkGateway(ctx, c.address, config); !strings.Contains(got, c.want) {
				t.Errorf("%q does not contain %q", got, c.want)
			}
		})
	}
}

// TestDialReasonIsThatOfTheSystem checks that the reason does not repeat the address and the call.
func TestDialReasonIsThatOfTheSystem(t *testing.T) {
	err := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.EHOSTUNREACH)}
	if got := dialReason(err); got != "no route to host" {
		t.Error(got)
	}
}
