package scenario

import (
	"flag"
	"os"
	"testing"

	"berth.dev/integration/built"
)

// acceptance makes tests assert the time limits of acceptance checks. `make acceptance` sets
// it.
var acceptance = flag.Bool("acceptance", false, "assert the time limits of the acceptance checks")

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return m.Run()
	}))
}
