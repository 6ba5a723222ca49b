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

// DialOptions say how one client differs from the usual one. The zero value
// calls any replica that answers, without TLS.
type DialOptions struct {
	// Health is the name a replica must report as serving to be called:
	// LeaderHealth("registry") for a leader, "executor-state" for any replica.
	// Empty calls any replica that can be connected to.
	Health string
	// FailFast answers Unavailable at once when no replica can be called. Calls
	// wait for one until their deadline otherwise.
	FailFast bool
	// Silence, when given, is how long a replica may give no word before the
	// connections to it are ended, so that calls under way fail as Unavailable and
	// new ones go elsewhere. Each replica is asked for a word about as often.
	// Without it a frozen replica is noticed by gRPC's pings, after 13 s.
	Silence time.Duration
	// TLS, when given, is used with the host of each address as server name.
	TLS *tls.Config
	// MaxMessage bounds an answer in bytes; PeerMessageLimit unless given.
	MaxMessage int
	// Stats, when given, sees every call: those of Silence excepted.
	Stats stats.Handler
	// More is passed on to grpc.NewClient.
	More []grpc.DialOption
}

const (
	// firstRedial is what lies between the first two re-dials of a replica that is gone;
	// the first is made at once. One whose process was killed is back after half a
	// second at the soonest, and to dial it every few milliseconds took a third of a
	// gateway's processor time just while another replica took over.
	firstRedial = 20 * time.Millisecond
	// longestRedial is what lies between two of them.
	longestRedial = 200 * time.Millisecond
)

// Dial makes a client of all replicas of a service, given as host:port. It
// keeps a connection to each and connects at once, so that a call after a
// change of leader finds it ready. A replica that goes away is dialled again at
// once, 20 ms after that, then more slowly, up to every 200 ms.
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
			// They do not grow far: a replica that has just come back may lead next,
			// and is called no sooner than it is dialled.
			Backoff:           backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: longestRedial},
			MinConnectTimeout: time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true,
		}),
		// An idle channel would forget who leads.
		grpc.WithIdleTimeout(0),
		RefuseCompressed(),
	}
	options := append(slices.Clone(connecting),
		grpc.WithResolvers(replicas),
		grpc.WithDefaultServiceConfig(serviceConfig(o)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(cmp.Or(o.MaxMessage, PeerMessageLimit))),
		// The repeats are ours: they know which answers are safe to repeat.
		grpc.WithDisableRetry(),
	)
	if o.Stats != nil {
		options = append(options, grpc.WithStatsHandler(o.Stats))
	}
	if o.Silence > 0 {
		l, err := listen(addresses, o.Silence, append(connecting, o.More...))
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

// serviceConfig asks for round robin over the healthy replicas.
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
