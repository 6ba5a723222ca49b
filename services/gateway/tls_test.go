package gateway_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
	"berth.dev/testkit/porttest"
)

// certificate writes a self-signed certificate and its key, and returns the paths of both
// files.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, bytes []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert", "CERTIFICATE", der), write("key", "PRIVATE KEY", pkcs8)
}

// If a client offers both versions of HTTP, as browsers do, it gets HTTP/1. gRPC gets
// HTTP/2 on the same port. A client without a certificate gets no answer.
func TestTLSOnTheOnePort(t *testing.T) {
	config := before(replica(t), porttest.Hold(t))
	config.TLSCert, config.TLSKey = certificate(t)
	config.TLSCA = config.TLSCert
	g := run(t, config)
	_, client, err := process.Common{TLSCert: config.TLSCert, TLSKey: config.TLSKey, TLSCA: config.TLSCA}.TLS()
	if err != nil {
		t.Fatal(err)
	}
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

	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: client.RootCAs}}}
	defer anonymous.CloseIdleConnections()
	if res, err := anonymous.Get("https://" + g.Listen + "/healthz"); err == nil {
		res.Body.Close()
		t.Errorf("a client without a certificate got %s", res.Status)
	}
}
