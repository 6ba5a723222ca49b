package rpc

import (
	"cmp"
	"crypto/tls"
	"encoding/json"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/health" // client-side health checks
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/stats"

	"berth.dev/api/fault"
)

// DialOptions configure a client. The zero value calls any replica that answers,
// without TLS.
type DialOptions struct {
	// Health is the health name that a replica must report as serving to be called:
	// LeaderHealth("registry") for a leader, "executor-state" for any replica. With ""
	// any connected replica is called.
	Health string
	// FailFast returns Unavailable at once if no replica can be called. By default
	// calls wait for one until their deadline.
	FailFast bool
	// Silence, if set, is the time after which a replica that answers nothing counts as
	// silent. Then its connections are closed, so that calls in progress fail as
	// Unavailable and new ones go elsewhere. Each replica gets a probe about as often.
	// Without it gRPC's pings detect a frozen replica after 13 s.
	Silence time.Duration
	// TLS, if set, is used with the host of each address as server name.
	TLS *tls.Config
	// MaxMessage bounds an answer in bytes, PeerMessageLimit by default.
	MaxMessage int
	// Stats, if set, sees every call except the probes of Silence.
	Stats stats.Handler
	// More is passed on to grpc.NewClient.
	More []grpc.DialOption
}

const (
	// firstRedial is the time between the first two redials of a replica; the first
	// redial is at once. A killed process takes half a second to return. Redialing
	// every few milliseconds took a third of a gateway's processor time just while
	// another replica took over.
	firstRedial = 20 * time.Millisecond
	// longestRedial is the maximum time between two redials.
	longestRedial = 200 * time.Millisecond
)

// Dial returns a client of all replicas of a service, each given as host:port. It
// connects to each at once and keeps the connections, so that a call after a failover
// finds one ready. It redials a lost replica at once, 20 ms after that, then more
// slowly, up to every 200 ms.
func Dial(addresses []string, o DialOptions) (*grpc.ClientConn, error) {
	if len(addresses) == 0 {
		return nil, fault.New(fault.Invalid, fault.ReasonRequired, "no addresses to dial")
	}
	var state resolver.State
	for _, address := range addresses {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fault.New(fault.Invalid, fault.ReasonInvalid, "address %q is not host:port", address).Because(err)
		}
		state.Endpoints = append(state.Endpoints, resolver.Endpoint{
			Addresses: []resolver.Address{{Addr: address, ServerName: host}},
		})
	}
	replicas := manual.NewBuilderWithScheme("berth")
	replicas.InitialState(state)

	creds := insecure.NewCredentials()
	if o.TLS != nil {
		creds = credentials.NewTLS(o.TLS)
	}
	connecting := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			// They do not grow far: a replica that has just returned may lead next, and
			// is only called once it is connected.
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestRedial},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true,
		}),
		// An idle channel would lose the health state, which shows the leader.
		grpc.WithIdleTimeout(0),
		RefuseCompressed(),
	}
	options := append(slices.Clone(connecting),
		grpc.WithResolvers(replicas),
		grpc.WithDefaultServiceConfig(serviceConfig(o)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(o.MaxMessage, PeerMessageLimit))),
		// Callers repeat calls: they know which ones are safe to repeat.
		grpc.WithDisableRetry(),
	)
	if o.Stats != nil {
		options = append(options, grpc.WithStatsHandler(o.Stats))
	}
	if o.Silence > 0 {
		l, err := probe(addresses, o.Silence, append(connecting, o.More...))
		if err != nil {
			return nil, err
		}
		replicas.CloseCallback = l.end
		options = append(options, grpc.WithContextDialer(l.dial))
	}
	conn, err := grpc.NewClient("berth:///replicas", append(options, o.More...)...)
	if err != nil {
		return nil, fault.New(fault.Internal, fault.ReasonInternal, "cannot make a client").Because(err)
	}
	conn.Connect()
	return conn, nil
}

// serviceConfig returns the gRPC configuration for round robin over the healthy
// replicas.
func serviceConfig(o DialOptions) string {
	type object = map[string]any
	config := object{
		"loadBalancingConfig": []object{{"round_robin": object{}}},
		"methodConfig":        []object{{"name": []object{{}}, "waitForReady": !o.FailFast}},
	}
	if o.Health != "" {
		config["healthCheckConfig"] = object{"serviceName": o.Health}
	}
	text, err := json.Marshal(config)
	if err != nil {
		panic(err) // maps of strings and booleans always marshal
	}
	return string(text)
}

// Loopback reports whether only this host can reach a host name: `localhost` or a loopback address.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
