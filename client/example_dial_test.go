package client_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"path"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/client"
)

// Connect a client to two gateways. Either gateway can answer any call, so the client works
// while one gateway is down.
func ExampleDial() {
	first, stopFirst := serveGateway(0)
	second, stopSecond := serveGateway(0)
	defer stopSecond()

	c, err := client.Dial([]string{first, second})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	stopFirst()
	r, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(client.KeyOf(r), r.GetState())
	// Output:
	// train/gpu/main ACTIVE
}

// Validate the addresses from a flag before you use them.
func ExampleAddresses() {
	addresses, err := client.Addresses([]string{"gateway-0:8080", "http://gateway-1:8080/"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(addresses)

	_, err = client.Addresses([]string{"gateway-0"}, nil)
	fmt.Println(err)
	// Output:
	// [gateway-0:8080 gateway-1:8080]
	// gateway: "gateway-0" must be host:port or http://host:port (INVALID)
}

// Trust the authority that signed the certificates of the gateways. A gateway that
// requires client certificates also needs the field Certificates.
func ExampleWithTLS() {
	address, authorities, stop := serveTLSGateway()
	defer stop()

	c, err := client.Dial([]string{"https://" + address}, client.WithTLS(&tls.Config{RootCAs: authorities}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.GetState())
	// Output:
	// ACTIVE
}

// Connect through the HTTP proxy of HTTPS_PROXY, except to loopback and the hosts of NO_PROXY.
func ExampleWithProxy() {
	address, authorities, stop := serveTLSGateway()
	defer stop()

	c, err := client.Dial([]string{"https://" + address}, client.WithTLS(&tls.Config{RootCAs: authorities}),
		client.WithProxy(func(address string) rpc.Proxy {
			proxy, err := http.ProxyFromEnvironment(&http.Request{URL: &url.URL{Scheme: "https", Host: address}})
			if err != nil {
				log.Print(err)
			}
			return rpc.Proxy{URL: proxy, Source: "HTTPS_PROXY"}
		}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	r, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r.GetState())
	// Output:
	// ACTIVE
}

// Log each retry, for example while no leader is elected.
func ExampleWithOnRetry() {
	address, stop := serveGateway(2)
	defer stop()

	c, err := client.Dial([]string{address}, client.WithOnRetry(func(err error) {
		fmt.Println("retrying:", err)
	}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	cancelled, err := c.Cancel(context.Background(), client.Key{Job: "train", Stage: "gpu"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(cancelled, "cancelled")
	// Output:
	// retrying: the registry has no leader (UNAVAILABLE)
	// retrying: the registry has no leader (UNAVAILABLE)
	// 0 cancelled
}

// methods is a stats handler that prints the method of each call.
type methods struct{}

func (methods) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	fmt.Println("calling", path.Base(info.FullMethodName))
	return ctx
}

func (methods) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (methods) HandleRPC(context.Context, stats.RPCStats)                         {}
func (methods) HandleConn(context.Context, stats.ConnStats)                       {}

// Observe every call. For traces, pass otelgrpc.NewClientHandler() instead.
func ExampleWithStatsHandler() {
	address, stop := serveGateway(0)
	defer stop()

	c, err := client.Dial([]string{address}, client.WithStatsHandler(methods{}))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Cancel(context.Background(), client.Key{Job: "train", Stage: "gpu"}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// calling CancelReservation
}

// Identify the program in the user agent that gateways receive.
func ExampleWithDialOptions() {
	address, stop := serveGateway(0, grpc.UnaryInterceptor(printUserAgent))
	defer stop()

	c, err := client.Dial([]string{address}, client.WithDialOptions(grpc.WithUserAgent("trainer/1.4")))
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Get(context.Background(), client.Key{Job: "train", Stage: "gpu"}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// called by trainer/1.4
}

// The name of a reservation is optional, and "main" by default.
func ExampleKeyOf() {
	fmt.Println(client.KeyOf(&berthv1.Reservation{Job: "train", Stage: "gpu", Name: "scale-8"}))
	fmt.Println(client.KeyOf(&berthv1.Reservation{Job: "train", Stage: "gpu"}))
	// Output:
	// train/gpu/scale-8
	// train/gpu/main
}
