// Package built guarantees that tests on real processes run the program `berth` of the
// current source, unless BERTH_BINARY names another program. It builds the program for
// the run and deletes the program after the run.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Run runs the tests of a package with the path of the program and returns their exit
// code. It returns 1 if the program cannot be built.
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
