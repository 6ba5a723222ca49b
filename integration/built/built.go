// Package built provides the program `berth` for tests on real processes: the one that
// BERTH_BINARY names, or one that is built for the run and deleted after it.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Run runs the tests of a package with the path of the program and returns their exit code,
// or 1 if there is no program.
func Run(tests func(path string) int) int {
	if path := os.Getenv("BERTH_BINARY"); path != "" {
		return tests(path)
	}
	dir, err := os.MkdirTemp("", "berth-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "berth")
	build := exec.Command("go", "build", "-o", path, "berth.dev/cmd/berth")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "building berth:", err)
		return 1
	}
	return tests(path)
}
