package doctor

import (
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/store"
)

// proxyOf returns the proxy for the address of a server.
type proxyOf = func(address string) rpc.Proxy

// Facts are the observations of a cluster.
type Facts struct {
	// patience is the maximum time for each answer.
	patience time.Duration
	// proxy, if set, returns the proxy for an address with TLS.
	proxy proxyOf

	// Gateways are in the order of the option.
	Gateways []Gateway
	// Listeners are the gateways' listeners. A listener without Want is missing if it does not
	// answer.
	Listeners []Listener
	// Answered reports whether a gateway answered. Otherwise Services, Findings and Ready are
	// not known.
	Answered bool
	Services []*berthv1.ServiceLeadership
	Findings []*berthv1.Finding
	// FindingsError and ReadyError are the errors of the calls for Findings and Ready.
	FindingsError, ReadyError string
	// Ready reports whether the registry is ready.
	Ready bool
	// Etcd is nil if --etcd-endpoints is not set.
	Etcd *store.Health
	// PlainEtcd has the endpoints of etcd to which calls cross the network in plain text.
	PlainEtcd []string
	// TLS reports whether the certificates of servers were checked.
	TLS          bool
	Certificates []Certificate
	// Clock is the time of the check of certificates, by the clock of this host. It is compared
	// with the expiry of the certificates.
	Clock time.Time
}

// Gateway is the observation of a gateway.
type Gateway struct {
	Address string
	// Error is the reason why the gateway did not answer. If another listener of a gateway
	// answered, Called is the option of that listener.
	Error, Called string
	// Unreachable reports whether the gateway could not be called or did not answer in time.
	Unreachable bool
	// NotReady has the reasons why the gateway is not ready. EtcdCluster is the ID of the etcd
	// cluster that it reads, or empty if that is not known.
	NotReady    []string
	EtcdCluster string
	// Asked and Answered are the times before and after the call, by the clock of this
	// host. Now is the time of the gateway during the call. It is zero if the gateway is
	// too old to report its time.
	Asked, Answered, Now time.Time
}

// Listener is the observation of an address of a gateway's listener.
type Listener struct {
	Address string
	// Want is the option of the listener that is expected at the address. It is empty for an
	// address of the public listener and for a default address.
	Want string
	// Serves is the option of the listener that answers. If no listener answers, Serves is
	// empty and Error is the reason.
	Serves, Error string
	// Loopback reports whether only this host can reach the address.
	Loopback bool
	// Plain reports whether the listener answers calls in plain text, and Encrypted whether it
	// answers calls with TLS.
	Plain, Encrypted bool
	// Locked reports whether the listener has a certificate and rejects this command, which has
	// none.
	Locked bool
}

// Certificate is the certificate of a server or of this command.
type Certificate struct {
	// Of is an address or a file.
	Of                  string
	NotBefore, NotAfter time.Time
	Error               string
}
