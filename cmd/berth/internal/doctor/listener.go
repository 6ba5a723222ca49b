package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
)

// The options of a gateway's listeners.
const (
	publicListen   = "--listen"
	agentsListen   = "--agents-listen"
	internalListen = "--internal-listen"
)

// callers names the callers of each listener.
var callers = map[string]string{agentsListen: "agents", internalListen: "the services", publicListen: "operators"}

// listeners returns the checks of the gateways' listeners. For the public listener and for a
// listener at a default address, listeners only checks whether the listener is open to
// unknown callers.
func listeners(list []Listener) []Check {
	const name = "listeners"
	var checks []Check
	var right []string
	for _, l := range slices.SortedFunc(slices.Values(list),
		func(a, b Listener) int { return cmp.Compare(a.Address, b.Address) }) {
		do := "set an address of " + l.Want + " in the --gateways of " + callers[l.Want]
		switch {
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
		if l.Loopback || callers[l.Serves] == "" || !l.Clear {
			continue
		}
		do = "bind it to loopback, or set --tls-cert, --tls-key and --tls-ca, or make sure that only " + callers[l.Serves] +
			" can reach the port"
		if l.TLS {
			do = "set --tls-mode of the gateway to require once all callers use TLS"
		}
		checks = append(checks, warn(name, do, "%s (%s) accepts plain text, and gives every caller the rights of %s",
			l.Address, l.Serves, callers[l.Serves]))
	}
	if len(checks) > 0 {
		return checks
	}
	if len(right) > 0 {
		return []Check{ok(name, "correct: %s", strings.Join(right, ", "))}
	}
	return []Check{ok(name, "no listener gives unknown callers of this host the rights of others")}
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
		wait.Go(func() { list[i].ask(ctx, f.patience, security) })
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

// ask finds out which listener answers at the address. It calls in plain text, and with this
// command's certificate.
func (l *Listener) ask(ctx context.Context, patience time.Duration, security *tls.Config) {
	l.Serves, l.Error = serves(ctx, patience, l.Address, nil)
	l.Clear = l.Serves != ""
	if security == nil {
		return
	}
	// The call contains no secret, and its answer is not trusted.
	security = security.Clone()
	security.InsecureSkipVerify = true
	option, failure := serves(ctx, patience, l.Address, security)
	l.TLS = option != ""
	if l.Serves == "" {
		l.Serves, l.Error = option, failure
	}
}

// serves returns the option of the gateway's listener at an address, or the reason why no
// listener answers. It calls a public method. Listeners that do not serve this method
// reject the call with an error that names their option.
func serves(ctx context.Context, patience time.Duration, address string, security *tls.Config) (option,
	failure string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := rpc.Dial([]string{address}, rpc.DialOptions{FailFast: true, TLS: security})
	if err != nil {
		return "", messageOf(err)
	}
	defer conn.Close()
	_, err = berthv1.NewLeadersClient(conn).ListLeaders(ctx, &berthv1.ListLeadersRequest{})
	f := rpc.FromStatus(err)
	if err == nil || f.Kind == fault.Denied {
		return publicListen, ""
	}
	return f.Meta[rpc.MetaCalled], messageOf(f)
}
