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
	"berth.dev/api/rpc"
	"berth.dev/pkg/process"
)

// The options of a gateway's listeners.
const (
	publicListen   = "--listen"
	agentsListen   = "--agents-listen"
	internalListen = "--internal-listen"
)

// callers are those for whom a listener is.
var callers = map[string]string{agentsListen: "agents", internalListen: "the services"}

// listeners judges the gateways' listeners for agents and services. Those that
// nobody named are a fact only if they are open.
func listeners(list []Listener) []Check {
	const name = "listeners"
	var checks []Check
	var right []string
	for _, l := range slices.SortedFunc(slices.Values(list), func(a, b Listener) int { return cmp.Compare(a.Address, b.Address) }) {
		do := "give " + callers[l.Want] + " an address of " + l.Want + " in --gateways"
		switch {
		case l.Want != "" && l.Serves == "":
			checks = append(checks, fail(name, do+", and see that a gateway runs there", "%s does not answer: %s", l.Address, l.Error))
			continue
		case l.Want != "" && l.Serves != l.Want:
			checks = append(checks, fail(name, do, "%s is of %s: %s get no answer there", l.Address, l.Serves, callers[l.Want]))
			continue
		case l.Want != "":
			right = append(right, l.Address)
		}
		if l.Loopback || callers[l.Serves] == "" || !l.Clear && !l.Strangers {
			continue
		}
		how := "in the clear"
		if l.Strangers {
			how = "to callers without a certificate"
		}
		checks = append(checks, warn(name, "bind it to loopback, or serve with --tls-cert and --tls-ca, or see that only "+callers[l.Serves]+" reach the port",
			"%s answers %s: it is of %s, and takes whatever reaches it for %s", l.Address, how, l.Serves, callers[l.Serves]))
	}
	if len(checks) > 0 {
		return checks
	}
	if len(right) > 0 {
		return []Check{ok(name, "as they should be: %s", strings.Join(right, ", "))}
	}
	return []Check{ok(name, "those for agents and services are not open to strangers, as far as this host sees")}
}

// askListeners looks who answers at the addresses that are named, and at those that
// listeners have by default.
func (f *Facts) askListeners(ctx context.Context, gateways Gateways, security *tls.Config) {
	var list []Listener
	add := func(want string, addresses ...string) {
		for _, address := range addresses {
			host, _, _ := net.SplitHostPort(address)
			list = append(list, Listener{Address: address, Want: want, Loopback: loopback(host)})
		}
	}
	add(agentsListen, gateways.Agents...)
	add(internalListen, gateways.Internal...)
	if len(gateways.Agents) == 0 {
		add("", likely(gateways.Public, process.DefaultAgents)...)
	}
	if len(gateways.Internal) == 0 {
		add("", likely(gateways.Public, process.DefaultInternal)...)
	}
	var wait sync.WaitGroup
	for i := range list {
		wait.Go(func() { list[i].ask(ctx, f.patience, security) })
	}
	wait.Wait()
	f.Listeners = slices.DeleteFunc(list, func(l Listener) bool { return l.Want == "" && l.Serves == "" })
}

// likely are the addresses at the hosts of gateways that have the port of a default
// address. A gateway on this host, called by loopback, may listen at the host's other
// addresses too.
func likely(gateways []string, standard string) []string {
	_, port, _ := net.SplitHostPort(standard) // it is one
	var addresses []string
	for _, address := range gateways {
		host, public, err := net.SplitHostPort(address)
		if err != nil || public == port {
			continue
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
		if !loopback(host) {
			continue
		}
		own, _ := net.InterfaceAddrs() // none, where they cannot be told
		for _, a := range own {
			if n, is := a.(*net.IPNet); is && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
				addresses = append(addresses, net.JoinHostPort(n.IP.String(), port))
			}
		}
	}
	return distinct(addresses)
}

// ask finds out who answers at the address: first as a stranger would, then with
// TLS without a certificate, then with our own.
func (l *Listener) ask(ctx context.Context, patience time.Duration, security *tls.Config) {
	if l.Serves, l.Error = serves(ctx, patience, l.Address, nil); l.Serves != "" {
		l.Clear = true
		return
	}
	if security == nil {
		return
	}
	stranger := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true} //nolint:gosec // it is sent nothing, and not believed
	if l.Serves, _ = serves(ctx, patience, l.Address, stranger); l.Serves != "" {
		l.Strangers = true
		return
	}
	l.Serves, l.Error = serves(ctx, patience, l.Address, security)
}

// serves is the option of the listener of a gateway that answers at an address, or
// why none does. A method of the public surface tells them apart: all others refuse
// it and say what they are.
func serves(ctx context.Context, patience time.Duration, address string, security *tls.Config) (option, failure string) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := rpc.Dial([]string{address}, rpc.DialOptions{FailFast: true, TLS: security})
	if err != nil {
		return "", said(err)
	}
	defer conn.Close()
	_, err = berthv1.NewLeadersClient(conn).ListLeaders(ctx, &berthv1.ListLeadersRequest{})
	if err == nil {
		return publicListen, ""
	}
	f := rpc.FromStatus(err)
	return f.Meta[rpc.MetaCalled], said(f)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
