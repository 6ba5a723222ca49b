package doctor

import (
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/store"
)

// Facts are what was seen of a cluster.
type Facts struct {
	// patience is how long each of those who are asked has to answer.
	patience time.Duration

	// Gateways, in the order they were named.
	Gateways []Gateway
	// Listeners are those of gateways for agents and services, as far as any answer.
	Listeners []Listener
	// Answered says that one of them did; without it the next are not known.
	Answered bool
	Services []*berthv1.ServiceLeadership
	Findings []*berthv1.Finding
	// FindingsError and ReadyError say why findings, and whether the registry is
	// ready, could not be told.
	FindingsError, ReadyError string
	// Ready says that the registry was told that all job services have asked, or
	// does not wait for it.
	Ready bool
	// Etcd is nil when nobody said where it is.
	Etcd *store.Health
	// Certificates of those who serve with TLS; TLS says that they were looked at.
	TLS          bool
	Certificates []Certificate
	// Clock is when the certificates were looked at, by this host.
	Clock time.Time
}

// Gateway is what was seen of a gateway.
type Gateway struct {
	Address string
	// Error says why it did not answer, and Called is the option of the listener that
	// refused, where that is another one of a gateway.
	Error, Called string
	// Unreachable reports whether it could not be called or did not answer in time.
	Unreachable bool
	// Asked and Told are this host's clock before and after its answer, and Now its
	// own in between; zero when it is too old to tell.
	Asked, Told, Now time.Time
}

// Listener is what was seen of an address at which agents or services call a
// gateway.
type Listener struct {
	Address string
	// Want is the option of the listener that it is meant to be, if somebody named it.
	Want string
	// Serves is the option of the listener that answers there, empty if none does; Error
	// says why.
	Serves, Error string
	// Loopback: nobody but this host reaches it there.
	Loopback bool
	// Clear: it answers in the clear. Strangers: it answers with TLS, to callers
	// without a certificate.
	Clear, Strangers bool
}

// Certificate is what somebody serves with.
type Certificate struct {
	// Of is an address or a file.
	Of       string
	NotAfter time.Time
	Error    string
}
