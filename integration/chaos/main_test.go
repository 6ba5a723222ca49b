package chaos

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) { os.Exit(withBinary(m)) }

func withBinary(m *testing.M) int {
	flag.Parse()
	if binary = os.Getenv("BERTH_BINARY"); binary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "berth-chaos-")
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
	return m.Run()
}
