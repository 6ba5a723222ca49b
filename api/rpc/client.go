package rpc

import (
	"cmp"
	"context"
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

// DialOptions configures a client. A client with the zero value calls any connected
// replica, without TLS.
type DialOptions struct {
	// Health is a health name. The client calls only replicas that report this name as
	// serving: LeaderHealth("registry") selects the leader of a service, and
	// "executor-state" every replica. With "" the client calls every connected replica.
	Health string
	// FailFast makes a call return Unavailable at once if no replica can be called. By
	// default calls wait for a replica until their deadline.
	FailFast bool
	// Silence, if set, is the time after which a replica that does not answer counts as
	// silent. Then the client closes the connections to this replica, so that calls in
	// progress return Unavailable and new calls go to other replicas. The client probes each
	// replica twice in this time. Without Silence the pings of gRPC detect a frozen replica
	// after 13 s.
	Silence time.Duration
	// TLS, if set, is the TLS configuration of the connections. The server name is the host
	// of each address.
	TLS *tls.Config
	// MaxMessage is the maximum size of an answer in bytes, PeerMessageLimit by default.
	MaxMessage int
	// Credentials, if set, adds metadata to every call except the probes of Silence.
	Credentials credentials.PerRPCCredentials
	// Stats, if set, is the stats handler of every call except the probes of Silence.
	Stats stats.Handler
	// Base, if set, is the path that precedes the paths of all methods; see CheckBase.
	Base string
	// Proxy, if set, returns the proxy for an address of Dial. By default the client connects
	// directly, whatever the environment says.
	Proxy func(address string) Proxy
	// More is passed on to grpc.NewClient.
	More []grpc.DialOption
}

const (
	// firstRedial is the time between the first two redials of a replica. The first redial
	// is immediate. A restarted process takes about half a second until it listens again.
	// Redials every few milliseconds used a third of a gateway's processor time during
	// failovers.
	firstRedial = 20 * time.Millisecond
	// longestRedial is the maximum time between two redials.
	longestRedial = 200 * time.Millisecond
	// The time for a connection. A proxy connects to the server before the client can.
	directConnect  = time.Second
	proxiedConnect = 5 * time.Second
)

// Dial returns a client of all replicas of a service, each given as host:port. It
// connects to every replica at once and keeps the connections, so that a call after a
// failover uses an existing connection. It redials a lost replica at once, after 20 ms,
// and then with growing pauses of up to 200 ms.
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
		creds = newTLS(o.TLS)
	}
	connectTime, connect, dialer := directConnect, Proxy{}.Dial, grpc.WithNoProxy()
	if o.Proxy != nil {
		creds, connectTime = named{creds}, proxiedConnect
		connect = func(ctx context.Context, address string) (net.Conn, error) {
			return o.Proxy(address).Dial(ctx, address)
		}
		dialer = grpc.WithContextDialer(connect)
	}
	connecting := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithConnectParams(grpc.ConnectParams{
			// The pauses stay short, because a replica that has just restarted may lead next, and
			// the client can call the replica only once it is connected.
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestRedial},
			MinConnectTimeout: connectTime,
		}),
		dialer,

		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true,
		}),
		// An idle channel would lose the health state, which shows the leader.
		grpc.WithIdleTimeout(0),
		RefuseCompressed(),
	}
	if o.Base != "" {
		// The interceptors of the caller see the methods without the base path.
		o.More = append(slices.Clone(o.More), below(o.Base)...)
	}
	options := append(slices.Clone(connecting),
		grpc.WithResolvers(replicas),
		grpc.WithDefaultServiceConfig(serviceConfig(o)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(o.MaxMessage, PeerMessageLimit))),
		// gRPC must not retry: callers know which calls are safe to repeat.
		grpc.WithDisableRetry(),
	)
	if o.Credentials != nil {
		options = append(options, grpc.WithPerRPCCredentials(o.Credentials))
	}
	if o.Stats != nil {
		options = append(options, grpc.WithStatsHandler(o.Stats))
	}
	if o.Silence > 0 {
		l, err := probe(addresses, o.Silence, connect, append(connecting, o.More...))
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
