package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
)

// The options of a gateway's listeners.
const (
	publicListen   = "--listen"
	agentsListen   = "--agents-listen"
	internalListen = "--internal-listen"
)

// callers names the callers of the listeners for agents and services, and trusted says what
// a caller in plain text may do at each listener.
var (
	callers = map[string]string{agentsListen: "agents", internalListen: "the services"}
	trusted = map[string]string{
		publicListen:   "every caller has all roles, including operator",
		agentsListen:   "every caller can act as any agent",
		internalListen: "every caller can act as any service",
	}
)

// listeners returns the checks of the gateways' listeners. For a listener without Want,
// listeners only checks whether the listener is open to unknown callers.
func listeners(list []Listener) []Check {
	const name = "listeners"
	var checks []Check
	var right []string
	for _, l := range slices.SortedFunc(slices.Values(list),
		func(a, b Listener) int { return cmp.Compare(a.Address, b.Address) }) {
		do := "set an address of " + l.Want + " in the --gateways of " + callers[l.Want]
		switch {
		case l.Want != "" && l.Locked:
			checks = append(checks, Check{Name: name, Verdict: Skipped, Seen: l.Address + " requires a certificate",
				Do: "to check which listener it is, set --tls-cert and --tls-key"})
			continue
		case l.Want != "" && l.Serves == "":
			checks = append(checks, fail(name, do+", and check that a gateway runs there", "%s does not answer: %s", l.Address,
				l.Error))
			continue
		case l.Want != "" && l.Serves != l.Want:
			checks = append(checks, fail(name, do, "%s is an address of %s, which rejects %s", l.Address, l.Serves,
				callers[l.Want]))
			continue
		case l.Want != "":
			right = append(right, l.Address)
		}
		switch {
		case !l.Plain:
		case l.Encrypted:
			checks = append(checks, warn(name, "set --tls-mode require once all callers use TLS",
				"%s (%s) accepts plain text as well as TLS: %s in plain text", l.Address, l.Serves, trusted[l.Serves]))
		case !l.Loopback:
			checks = append(checks, warn(name, "set --tls-cert, --tls-key and --tls-ca instead of --insecure, or bind it to loopback, or make sure that only trusted callers can reach the port",
				"%s (%s) accepts plain text: %s", l.Address, l.Serves, trusted[l.Serves]))
		}
	}
	if len(checks) > 0 {
		return checks
	}
	if len(right) > 0 {
		return []Check{ok(name, "correct: %s", strings.Join(right, ", "))}
	}
	return []Check{ok(name, "no listener is open to unknown callers of this host")}
}

// askListeners calls the listeners at the given addresses, or at the default addresses.
func (f *Facts) askListeners(ctx context.Context, gateways Gateways, security *tls.Config) {
	var list []Listener
	add := func(want string, addresses ...string) {
		for _, address := range addresses {
			host, _, _ := net.SplitHostPort(address)
			list = append(list, Listener{Address: address, Want: want, Loopback: rpc.Loopback(host)})
		}
	}
	add("", gateways.Public...)
	add(agentsListen, gateways.Agents...)
	add(internalListen, gateways.Internal...)
	if len(gateways.Agents) == 0 {
		add("", withPort(gateways.Public, process.DefaultAgents)...)
	}
	if len(gateways.Internal) == 0 {
		add("", withPort(gateways.Public, process.DefaultInternal)...)
	}
	var wait sync.WaitGroup
	for i := range list {
		wait.Go(func() { list[i].ask(ctx, f.patience, security, f.proxy) })
	}
	wait.Wait()
	f.Listeners = slices.DeleteFunc(list, func(l Listener) bool { return l.Want == "" && l.Serves == "" })
}

// withPort returns the addresses of gateways with their port replaced by a default port.
// If an address is on loopback, withPort adds the other addresses of this host, because
// the gateway may also listen there.
func withPort(gateways []string, standard string) []string {
	_, port, _ := net.SplitHostPort(standard) // standard is valid
	var addresses []string
	for _, address := range gateways {
		host, public, err := net.SplitHostPort(address)
		if err != nil || public == port {
			continue
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
		if !rpc.Loopback(host) {
			continue
		}
		own, _ := net.InterfaceAddrs() // empty after an error
		for _, a := range own {
			if n, is := a.(*net.IPNet); is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
				addresses = append(addresses, net.JoinHostPort(n.IP.String(), port))
			}
		}
	}
	return distinct(addresses)
}

// ask finds out which listener answers at the address. It calls in plain text first, and
// then with TLS, through its proxy if proxy is set.
func (l *Listener) ask(ctx context.Context, patience time.Duration, security *tls.Config, proxy proxyOf) {
	l.Serves, l.Error = serves(ctx, patience, l.Address, nil, nil)
	l.Plain = l.Serves != ""
	if security == nil {
		if !l.Plain {
			l.Error += "; if it requires TLS, set --tls-ca, --tls-cert and --tls-key"
		}
		return
	}
	encrypted, failure := serves(ctx, patience, l.Address, anyHost(security), proxy)
	l.Encrypted = encrypted != ""
	if !l.Plain {
		l.Serves, l.Error = encrypted, failure
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		// The alert of a server that requires a certificate can get lost when the server closes
		// the connection.
		l.Locked = !l.Encrypted && len(security.Certificates) == 0 && presented(ctx, l.Address, security, proxy).Error == ""
	}
}

// anyHost returns the configuration of calls to servers that callers know by their role:
// their certificates need not be for the host of their address.
func anyHost(with *tls.Config) *tls.Config {
	config := with.Clone()
	config.InsecureSkipVerify = true // VerifyConnection verifies the chain
	config.VerifyConnection = func(state tls.ConnectionState) error {
		options := x509.VerifyOptions{Roots: with.RootCAs, Intermediates: x509.NewCertPool()}
		for _, certificate := range state.PeerCertificates[1:] {
			options.Intermediates.AddCert(certificate)
		}
		_, err := state.PeerCertificates[0].Verify(options)
		return err
	}
	return config
}

// serves returns the option of the gateway's listener at an address, or the reason why no
// listener answers. It calls a public method. Listeners that do not serve this method
// reject the call with an error that names their option.
func serves(ctx context.Context, patience time.Duration, address string, security *tls.Config,
	proxy proxyOf) (option, failure string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := rpc.Dial([]string{address}, rpc.DialOptions{FailFast: true, TLS: security, Proxy: proxy})
	if err != nil {
		return "", messageOf(err)
	}
	defer conn.Close()
	_, err = berthv1.NewLeadersClient(conn).ListLeaders(ctx, &berthv1.ListLeadersRequest{})
	if err == nil {
		return publicListen, ""
	}
	f := rpc.FromStatus(err)
	return f.Meta[rpc.MetaCalled], messageOf(f)
}
