package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/process"
	"berth.dev/services/gateway"
	"berth.dev/testkit/porttest"
)

// run runs a gateway without services until the test ends.
func run(t *testing.T, change func(*gateway.Config)) process.Addresses {
	t.Helper()
	nobody := []string{porttest.Hold(t)}
	config := gateway.DefaultConfig()
	config.Listen, config.AgentsListen, config.InternalListen = ":0", ":0", ":0"
	config.LogLevel, config.Etcd, config.Registry, config.ExecutorState, config.Assigner = "error", nobody, nobody,
		nobody, nobody
	change(&config)
	ctx, stop := context.WithCancel(context.Background())
	bound, ended := make(chan process.Addresses, 1), make(chan error, 1)
	go func() { ended <- gateway.Run(ctx, config, func(a process.Addresses) { bound <- a }) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-bound:
		return a
	case err := <-ended:
		ended <- nil
		t.Fatal(err)
	}
	return process.Addresses{}
}

// evaluated returns the text of the checks of a gateway's listeners.
func evaluated(t *testing.T, gateways Gateways, config process.Common) string {
	t.Helper()
	_, security, err := config.TLS()
	if err != nil {
		t.Fatal(err)
	}
	f := Facts{patience: time.Minute}
	f.askListeners(t.Context(), gateways, security)
	return lines(listeners(f.Listeners), "")
}

func TestListenersAreDistinguished(t *testing.T) {
	g := run(t, func(*gateway.Config) {})
	silent := porttest.Hold(t)
	for _, c := range []struct {
		gateways Gateways
		want     string
	}{
		{Gateways{Agents: []string{g.Agents}, Internal: []string{g.Internal}}, "OK listeners: correct: "},
		{Gateways{Agents: []string{g.Internal}, Internal: []string{g.Internal}},
			"FAIL listeners: " + g.Internal + " is an address of --internal-listen, which rejects agents"},
		{Gateways{Agents: []string{g.Agents}, Internal: []string{g.Agents}},
			"FAIL listeners: " + g.Agents + " is an address of --agents-listen, which rejects the services"},
		{Gateways{Agents: []string{g.Listen}, Internal: []string{g.Internal}},
			"FAIL listeners: " + g.Listen + " is an address of --listen, which rejects agents"},
		{Gateways{Agents: []string{g.Agents}, Internal: []string{silent}},
			"FAIL listeners: " + silent + " does not answer: "},
	} {
		if got := evaluated(t, c.gateways, process.Common{}); !strings.HasPrefix(got, c.want) ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("%+v:\n%swant %s", c.gateways, got, c.want)
		}
	}
	f := Facts{patience: time.Minute}
	if err := f.askGateways(t.Context(), []string{g.Internal}, nil); err != nil {
		t.Fatal(err)
	}
	if got := lines(gateways(f.Gateways), ""); !strings.Contains(got,
		"is an address of --internal-listen: berth.v1.Leaders/ListLeaders is served on --listen") {
		t.Errorf("a gateway at the wrong listener: %s", got)
	}
}

// TestAnOpenListenerIsFound checks that doctor, on the host of the gateway, finds a
// listener that is open beyond loopback. A listener that requires a client certificate is
// not open.
func TestAnOpenListenerIsFound(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(own, func(a net.Addr) bool {
		n, is := a.(*net.IPNet)
		return is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast()
	})
	if i < 0 {
		t.Skip("this host has only loopback")
	}
	host := own[i].(*net.IPNet).IP.String()
	at := func(bound string) []string {
		_, port, _ := net.SplitHostPort(bound)
		return []string{net.JoinHostPort(host, port)}
	}
	cert, key := certificateFor(t)
	known := process.Common{TLSCert: cert, TLSKey: key, TLSCA: cert}
	for name, c := range map[string]struct {
		change func(*gateway.Config)
		want   []string
	}{
		"without TLS": {func(c *gateway.Config) { c.Insecure = true },
			[]string{"WARN listeners: %a (--agents-listen) answers without TLS",
				"WARN listeners: %i (--internal-listen) answers without TLS"}},
		"TLS without client certificates": {func(c *gateway.Config) { c.TLSCert, c.TLSKey = cert, key },
			[]string{"WARN listeners: %a (--agents-listen) answers to callers without a certificate",
				"WARN listeners: %i (--internal-listen) answers to callers without a certificate"}},
		"TLS with client certificates": {func(c *gateway.Config) { c.TLSCert, c.TLSKey, c.TLSCA = cert, key, cert },
			[]string{"OK listeners: correct"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := run(t, func(config *gateway.Config) {
				config.AgentsListen, config.InternalListen = "0.0.0.0:0", "0.0.0.0:0"
				c.change(config)
			})
			agents, internal := at(g.Agents), at(g.Internal)
			got := evaluated(t, Gateways{Agents: agents, Internal: internal}, known)
			for _, want := range c.want {
				if want = strings.NewReplacer("%a", agents[0], "%i", internal[0]).Replace(want); !strings.Contains(got, want) {
					t.Errorf("no %q in\n%s", want, got)
				}
			}
			if n := strings.Count(got, "\n"); n != len(c.want) {
				t.Errorf("%d lines:\n%s", n, got)
			}
		})
	}
}

// TestDefaultListeners checks that doctor expects the listeners at their default ports if
// no options are set.
func TestDefaultListeners(t *testing.T) {
	for _, c := range []struct{ gateway, want string }{
		{"gateway-0:8080", "gateway-0:8082"},
		{"[fd00::1]:8080", "[fd00::1]:8082"},
		{"10.0.0.7:8082", ""}, // the default port, but named as a public address
		{"nonsense", ""},
	} {
		if got := strings.Join(withPort([]string{c.gateway}, process.DefaultInternal), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.gateway, got, c.want)
		}
	}
	if got := withPort([]string{"127.0.0.1:8080"}, process.DefaultAgents); !slices.Contains(got, "127.0.0.1:8081") {
		t.Errorf("on this host: %q", got)
	}
}

// certificateFor writes a self-signed certificate for every address of this host, and its key.
func certificateFor(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if n, is := a.(*net.IPNet); is {
			template.IPAddresses = append(template.IPAddresses, n.IP)
		}
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
