package rpc_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests in an environment with a proxy that does not exist: connections use only
// the proxy of DialOptions.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTPS_PROXY", "http://proxy.invalid:3128"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
