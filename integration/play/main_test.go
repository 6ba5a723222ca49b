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

// atOnce is how many clusters of processes run at the same time, unless the flag
// -parallel says otherwise: they wait more than they work.
const atOnce = "4"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", atOnce)
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return tidy(m)
	}))
}

// tidy runs the tests and looks whether they left anything running.
func tidy(m *testing.M) int {
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
