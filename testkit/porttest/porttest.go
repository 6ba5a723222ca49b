// Package porttest reserves ports, which the kernel assigns to no other process until the
// test ends. Tests use them for a server that restarts at the same address, for an
// address without a listener, and for one that never answers.
package porttest

import (
	"io"
	"net"
	"sync"
	"testing"

	"berth.dev/pkg/process/port"
)

// Hold reserves a loopback address until the test ends. Connections to this address are
// refused unless the test listens on it.
func Hold(t testing.TB) string {
	t.Helper()
	held, err := port.Hold("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	return held.Address()
}

// Silent returns the address of a server that accepts connections and never answers, until the
// test ends.
func Silent(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer c.Close()
				io.Copy(io.Discard, c) //nolint:errcheck // until the client closes the connection
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		serving.Wait()
	})
	return l.Addr().String()
}
