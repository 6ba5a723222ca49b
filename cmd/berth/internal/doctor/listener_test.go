package doctor

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/transport"
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
func evaluated(t *testing.T, gateways Gateways, security *tls.Config) string {
	t.Helper()
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
		if got := evaluated(t, c.gateways, nil); !strings.HasPrefix(got, c.want) ||
			strings.Count(got, "\n") != 1 {
			t.Errorf("%+v:\n%swant %s", c.gateways, got, c.want)
		}
	}
	f := Facts{patience: time.Minute}
	if err := f.askGateways(t.Context(), Config{Gateways: Gateways{Public: []string{g.Internal}}}); err != nil {
		t.Fatal(err)
	}
	if got := lines(gateways(f.Gateways), ""); !strings.Contains(got,
		"is an address of --internal-listen: berth.v1.Leaders/ListLeaders is served on --listen") {
		t.Errorf("a gateway at the wrong listener: %s", got)
	}
}

// TestGatewaysBelowAPath checks that doctor does not look for the listeners of a gateway at a
// proxy, but checks the certificate of the proxy.
func TestGatewaysBelowAPath(t *testing.T) {
	direct, hosts := withoutPath([]string{"gateway:8080", "proxy:443/tools/berth"})
	if !slices.Equal(direct, []string{"gateway:8080"}) || !slices.Equal(hosts, []string{"gateway:8080", "proxy:443"}) {
		t.Errorf("%q and %q", direct, hosts)
	}
}

// TestAnOpenListenerIsFound checks that doctor, on the host of the gateway, finds a
// listener beyond loopback that accepts plain text. The certificate of the gateway is not
// for the address of the host.
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
	files := issued(t)
	server, operator := files(identity.Gateway), clientConfig(t, files(identity.Operator))
	anonymous := &tls.Config{RootCAs: operator.RootCAs}
	const (
		open = "%s (%s) accepts plain text: every caller"
		both = "%s (%s) accepts plain text as well as TLS: every caller"
	)
	for name, c := range map[string]struct {
		mode     string // of TLS; without TLS if empty
		security *tls.Config
		want     []string
	}{
		"plain text":                        {"", nil, []string{"WARN listeners: " + open}},
		"plain text, asked with TLS":        {"", operator, []string{"WARN listeners: " + open}},
		"allow":                             {"allow", operator, []string{"WARN listeners: " + both}},
		"prefer":                            {"prefer", operator, []string{"WARN listeners: " + both}},
		"prefer, asked without TLS":         {"prefer", nil, []string{"WARN listeners: " + open}},
		"require":                           {"require", operator, nil},
		"require, asked without TLS":        {"require", nil, []string{"FAIL listeners: %s does not answer: "}},
		"require, asked by an unknown peer": {"require", anonymous, []string{"SKIP listeners: %s requires a certificate"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := run(t, func(config *gateway.Config) {
				config.Listen, config.AgentsListen, config.InternalListen = "0.0.0.0:0", "0.0.0.0:0", "0.0.0.0:0"
				config.Insecure = c.mode != "require"
				if c.mode != "" {
					config.TLSCert, config.TLSKey, config.TLSCA, config.TLSMode = server.Cert, server.Key, server.CA, c.mode
				}
			})
			gateways := Gateways{Public: at(g.Listen), Agents: at(g.Agents), Internal: at(g.Internal)}
			got := evaluated(t, gateways, c.security)
			if c.want == nil {
				if !strings.HasPrefix(got, "OK listeners: correct: ") || strings.Count(got, "\n") != 1 {
					t.Errorf("got %s", got)
				}
				return
			}
			for _, want := range c.want {
				for option, address := range map[string]string{publicListen: gateways.Public[0], agentsListen: gateways.Agents[0],
					internalListen: gateways.Internal[0]} {
					if option == publicListen && !strings.HasPrefix(want, "WARN") {
						continue // the check of the gateway reports it
					}
					text := strings.NewReplacer("%s (%s)", address+" ("+option+")", "%s", address).Replace(want)
					if !strings.Contains(got, text) {
						t.Errorf("no %q in\n%s", text, got)
					}
				}
			}
		})
	}
}

// TestCertificatesOfAGateway checks that doctor reports the certificates of a gateway and its
// own, and that it warns before they expire.
func TestCertificatesOfAGateway(t *testing.T) {
	files := issued(t)
	server, operator := files(identity.Gateway), files(identity.Operator)
	g := run(t, func(config *gateway.Config) {
		config.TLSCert, config.TLSKey, config.TLSCA = server.Cert, server.Key, server.CA
	})
	security := clientConfig(t, operator)
	f := Facts{patience: time.Minute, TLS: true, Clock: time.Now()}
	f.askCertificates(t.Context(), []string{g.Listen, g.Agents, g.Internal}, security, nil)
	if c, has := own(operator.Cert, security); has {
		f.Certificates = append(f.Certificates, c)
	}
	got := lines(certificates(f), "")
	for _, of := range []string{g.Listen, g.Agents, g.Internal, operator.Cert} {
		if !strings.Contains(got, "WARN certificates: "+of+": expires at ") {
			t.Errorf("no warning for %s in\n%s", of, got)
		}
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

// issued returns a function that issues certificates, which expire in an hour.
func issued(t *testing.T) func(identity.Role) certs.Files {
	t.Helper()
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return func(role identity.Role) certs.Files {
		files, err := authority.Issue(identity.Identity{Cluster: "default", Role: role, Name: "test"},
			[]string{"localhost"}, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
}

func clientConfig(t *testing.T, files certs.Files) *tls.Config {
	t.Helper()
	config, err := transport.ClientConfig(files.Cert, files.Key, files.CA)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
