package play

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binary is the program `berth`.
var binary string

// atOnce is how many clusters of processes run at the same time, unless the flag
// -parallel says otherwise: they wait more than they work.
const atOnce = "4"

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	_ = flag.Set("test.parallel", atOnce)
	flag.Parse()
	if binary = os.Getenv("BERTH_BINARY"); binary != "" {
		return tidy(m)
	}
	dir, err := os.MkdirTemp("", "berth-play-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "berth")
	build := exec.Command("go", "build", "-o", binary, "berth.dev/cmd/berth")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building berth:", err)
		return 1
	}
	return tidy(m)
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
