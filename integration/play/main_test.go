package play

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"berth.dev/integration/built"
)

// binary is the program `berth`.
var binary string

// acceptance makes limits of time apply to real processes. `make acceptance` sets it.
var acceptance = flag.Bool("acceptance", false, "assert the time limits of the acceptance checks")

// parallelClusters is the default of the flag -parallel. This many clusters of real
// processes run at the same time, because they mostly wait.
const parallelClusters = "4"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", parallelClusters)
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return runAndCheckLeaks(m)
	}))
}

// runAndCheckLeaks runs the tests and checks that no goroutine is left.
func runAndCheckLeaks(m *testing.M) int {
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
