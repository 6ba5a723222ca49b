// Package porttest reserves ports, which the kernel assigns to no other process until the
// test ends. Tests use them for a server that restarts at the same address, and for an
// address without a listener.
package porttest

import (
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
