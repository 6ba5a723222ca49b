// Package rpctest serves a part of a service on a real connection until the test ends,
// for tests of the messages between processes.
package rpctest

import (
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"berth.dev/api/rpc"
)

// Serve serves the registered services until the test ends, and returns a client with the
// limits of a gateway.
func Serve(t testing.TB, register func(grpc.ServiceRegistrar)) *grpc.ClientConn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.ServerOptions{})
	register(server)
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(l) }) // ends with Stop
	t.Cleanup(func() {
		server.Stop()
		served.Wait()
	})
	conn, err := rpc.Dial([]string{l.Addr().String()}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
