package doctor

import (
	"context"
	"crypto/tls"
	"slices"
	"strings"
	"sync"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/pkg/process"
	"berth.dev/pkg/store"
)

// Patience is the default of the maximum time for the answer of each gateway, etcd member
// and listener. It must be longer than a second: a gateway needs that time to detect that
// a replica has exited.
const Patience = 3 * time.Second

// Gateways has the addresses of the gateways' listeners. The defaults of Agents and
// Internal are the hosts of Public with the default ports.
type Gateways struct {
	Public, Agents, Internal []string
}

// Config says what to check, and how to call it.
type Config struct {
	Gateways
	// Options are the options of calls to the gateways. TLS is their TLS configuration; nil for
	// plain text. Cert is the file of its certificate.
	Options []client.Option
	TLS     *tls.Config
	Cert    string
	// Proxy, if set, returns the proxy for the address of a gateway or of a replica with TLS.
	Proxy func(address string) rpc.Proxy
	// Etcd is not checked if it has no endpoints.
	Etcd store.DialConfig
	// Patience is the maximum time for each answer.
	Patience time.Duration
}

// Collect collects the facts from the gateways, from etcd and from TLS servers. It returns
// an error only if the configuration is invalid.
func Collect(ctx context.Context, config Config) (Facts, error) {
	f := Facts{patience: config.Patience, proxy: config.Proxy}
	if err := f.askGateways(ctx, config); err != nil {
		return Facts{}, err
	}
	direct, hosts := withoutPath(config.Public)
	f.askListeners(ctx, Gateways{direct, config.Agents, config.Internal}, config.TLS)
	if len(config.Etcd.Endpoints) > 0 {
		s, err := store.Dial(config.Etcd)
		if err != nil {
			return Facts{}, err
		}
		for _, endpoint := range config.Etcd.Endpoints {
			if process.PlainEtcd(endpoint) {
				f.PlainEtcd = append(f.PlainEtcd, endpoint)
			}
		}
		health := s.Inspect(ctx, f.patience)
		f.Etcd = &health
		s.Close() // the error does not matter after the last call
	}
	f.Clock = time.Now()
	if config.TLS != nil {
		f.TLS = true
		f.askCertificates(ctx, slices.Concat(hosts, config.Agents, config.Internal, f.replicas()), config.TLS,
			f.proxy)
		if c, has := own(config.Cert, config.TLS); has {
			f.Certificates = append(f.Certificates, c)
		}
	}
	if members := encrypted(config.Etcd.Endpoints); len(members) > 0 {
		f.TLS = true
		f.askCertificates(ctx, members, config.Etcd.TLS, nil)
	}
	return f, nil
}

// withoutPath returns the addresses of gateways that have no path, and all addresses without
// their paths. An address with a path is one of a proxy, which has no listeners of a gateway.
func withoutPath(gateways []string) (direct, hosts []string) {
	for _, address := range gateways {
		host, _, proxied := strings.Cut(address, "/")
		hosts = append(hosts, host)
		if !proxied {
			direct = append(direct, address)
		}
	}
	return direct, hosts
}

// askGateways requests the leaders from each gateway. It requests all other facts from
// the first gateway that answers.
func (f *Facts) askGateways(ctx context.Context, config Config) error {
	for _, address := range config.Public {
		c, err := client.Dial([]string{address}, config.Options...)
		if err != nil {
			return err
		}
		f.askGateway(ctx, address, c)
		c.Close() // the error does not matter after the last call
	}
	return nil
}

func (f *Facts) askGateway(ctx context.Context, address string, c *client.Client) {
	g := Gateway{Address: address, Asked: time.Now()}
	limited, cancel := context.WithTimeout(ctx, f.patience)
	leaders, err := c.Leaders(limited)
	cancel()
	g.Answered = time.Now()
	switch {
	case err != nil:
		g.Error, g.Called = messageOf(err), fault.Of(err).Meta[rpc.MetaCalled]
		g.Unreachable = fault.Of(err).Kind == fault.Unavailable
	case leaders.GetNow() != nil:
		g.Now = leaders.GetNow().AsTime()
	}
	g.NotReady, g.EtcdCluster = leaders.GetNotReady(), leaders.GetEtcdCluster()
	f.Gateways = append(f.Gateways, g)
	if err != nil || f.Answered {
		return
	}
	f.Answered, f.Services = true, leaders.GetServices()
	limited, cancel = context.WithTimeout(ctx, f.patience)
	defer cancel()
	found, err := c.Findings(limited)
	if err != nil {
		f.FindingsError = messageOf(err)
	}
	f.Findings = found.GetFindings()
	limited, cancel = context.WithTimeout(ctx, f.patience)
	defer cancel()
	_, err = c.PendingPage(limited, &berthv1.ListPendingRequest{PageSize: 1})
	switch {
	case err == nil:
		f.Ready = true
	case !fault.Is(err, fault.ReasonRegistryNotReady):
		f.ReadyError = messageOf(err)
	}
}

// replicas returns the addresses of the replicas that answer.
func (f *Facts) replicas() (addresses []string) {
	for _, s := range f.Services {
		for _, r := range s.GetReplicas() {
			if r.GetRole() != berthv1.Replica_UNREACHABLE {
				addresses = append(addresses, r.GetAddress())
			}
		}
	}
	return addresses
}

// askCertificates collects the certificates of the servers at the given addresses, through their
// proxies if proxy is set.
func (f *Facts) askCertificates(ctx context.Context, addresses []string, security *tls.Config, proxy proxyOf) {
	addresses = distinct(addresses)
	ctx, cancel := context.WithTimeout(ctx, f.patience)
	defer cancel()
	found := make([]Certificate, len(addresses))
	var wait sync.WaitGroup
	for i, address := range addresses {
		wait.Go(func() { found[i] = presented(ctx, address, security, proxy) })
	}
	wait.Wait()
	f.Certificates = append(f.Certificates, found...)
}

// encrypted returns the endpoints that use TLS, as host:port.
func encrypted(endpoints []string) []string {
	var list []string
	for _, endpoint := range endpoints {
		if address, https := strings.CutPrefix(endpoint, "https://"); https {
			list = append(list, address)
		}
	}
	return list
}

// messageOf returns the message of an error and of its cause.
func messageOf(err error) string {
	f := fault.Of(err)
	text := f.Message
	if f.Cause != nil {
		text += ": " + fault.Of(f.Cause).Message
	}
	if text == "" {
		return f.Kind.String()
	}
	return text
}
