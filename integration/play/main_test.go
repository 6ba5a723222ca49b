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

// atOnce is the default of the flag -parallel: the number of clusters of processes that run
// at the same time. They mostly wait.
const atOnce = "4"

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", atOnce)
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return tidy(m)
	}))
}

// tidy runs the tests and checks that no process is left.
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
