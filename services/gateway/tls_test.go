package gateway_test

import (
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"berth.dev/api/rpc"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
	"berth.dev/services/gateway"
	"berth.dev/testkit/porttest"
)

// secured gives a gateway the certificate of a new authority. Its services stay in plain
// text, so the gateway accepts encrypted connections and calls in plain text.
func secured(t *testing.T, config gateway.Config) (gateway.Config, *certs.Authority) {
	t.Helper()
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files := issue(t, authority, identity.Gateway, "g")
	config.TLSCert, config.TLSKey, config.TLSCA = files.Cert, files.Key, files.CA
	return config, authority
}

func issue(t *testing.T, authority *certs.Authority, role identity.Role, name string) certs.Files {
	t.Helper()
	files, err := authority.Issue(identity.Identity{Cluster: "default", Role: role, Name: name}, []string{"127.0.0.1"},
		time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// clientOf returns the configuration of a client with a certificate.
func clientOf(t *testing.T, authority *certs.Authority, role identity.Role, name string) *tls.Config {
	t.Helper()
	files := issue(t, authority, role, name)
	config, err := transport.ClientConfig(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// If a client offers both versions of HTTP, as browsers do, it gets HTTP/1. gRPC gets
// HTTP/2 on the same port.
func TestTLSOnTheOnePort(t *testing.T) {
	config, authority := secured(t, before(replica(t), porttest.Hold(t)))
	g := run(t, config)
	client := clientOf(t, authority, identity.Viewer, "v")
	conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{TLS: client})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Errorf("gRPC: %v", err)
	}
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: client.Clone(), ForceAttemptHTTP2: true}}
	defer web.CloseIdleConnections()
	res, err := web.Get("https://" + g.Listen + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != http.StatusOK || res.ProtoMajor != 1 {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
}
