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

// TestAnOpenListenerIsFound checks that doctor, on the host of the gateway, finds a
// listener that accepts plain text beyond loopback. A listener that requires TLS is not
// open.
func TestAnOpenListenerIsFound(t *testing.T) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(addresses, func(a net.Addr) bool {
		n, is := a.(*net.IPNet)
		return is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast()
	})
	if i < 0 {
		t.Skip("this host has only loopback")
	}
	host := addresses[i].(*net.IPNet).IP.String()
	at := func(bound string) []string {
		_, port, _ := net.SplitHostPort(bound)
		return []string{net.JoinHostPort(host, port)}
	}
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	issue := func(role identity.Role) certs.Files {
		files, err := authority.Issue(identity.Identity{Cluster: "default", Role: role, Name: "n"}, nil, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	own, served := issue(identity.Viewer), issue(identity.Gateway)
	known, err := transport.ClientConfig(own.Cert, own.Key, own.CA)
	if err != nil {
		t.Fatal(err)
	}
	secured := func(mode string) process.Security {
		return process.Security{TLSCert: served.Cert, TLSKey: served.Key, TLSCA: served.CA, TLSMode: mode, Insecure: true}
	}
	for name, c := range map[string]struct {
		change func(*gateway.Config)
		want   []string
	}{
		"plain text": {func(c *gateway.Config) { c.Insecure = true },
			[]string{"WARN listeners: %a (--agents-listen) accepts plain text, and gives every caller the rights of agents",
				"WARN listeners: %i (--internal-listen) accepts plain text, and gives every caller the rights of the services",
				"WARN listeners: %p (--listen) accepts plain text, and gives every caller the rights of operators"}},
		"both": {func(c *gateway.Config) { c.Security = secured("prefer") },
			[]string{"WARN listeners: %a (--agents-listen) accepts plain text", "WARN listeners: %i (--internal-listen) accepts plain text",
				"WARN listeners: %p (--listen) accepts plain text"}},
		"TLS": {func(c *gateway.Config) { c.Security = secured("") }, []string{"OK listeners: correct"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := run(t, func(config *gateway.Config) {
				config.Listen, config.AgentsListen, config.InternalListen = "0.0.0.0:0", "0.0.0.0:0", "0.0.0.0:0"
				c.change(config)
			})
			public, agents, internal := at(g.Listen), at(g.Agents), at(g.Internal)
			got := evaluated(t, Gateways{Public: public, Agents: agents, Internal: internal}, known)
			for _, want := range c.want {
				replace := strings.NewReplacer("%p", public[0], "%a", agents[0], "%i", internal[0])
				if want = replace.Replace(want); !strings.Contains(got, want) {
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
