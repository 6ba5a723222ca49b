// Package porttest holds ports for tests: for a server that is to be started
// again at the address it had, and for an address where nobody listens.
package porttest

import (
	"testing"

	"berth.dev/pkg/process/port"
)

// Hold answers a loopback address that is the test's until it ends. Connections
// to it are refused unless the test listens there.
func Hold(t testing.TB) string {
	t.Helper()
	held, err := port.Hold("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(held.Release)
	return held.Address()
}
