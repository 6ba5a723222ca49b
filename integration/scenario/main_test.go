package scenario

import (
	"flag"
	"os"
	"testing"

	"berth.dev/integration/built"
)

var (
	// binary is the program `berth`.
	binary string
	// acceptance makes the tests check time limits. `make acceptance` sets it.
	acceptance = flag.Bool("acceptance", false, "assert the time limits of the acceptance checks")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return m.Run()
	}))
}
