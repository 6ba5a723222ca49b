package chart

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// berth is the binary of the image.
var berth = os.Getenv("BERTH_BINARY")

func TestMain(m *testing.M) {
	if berth != "" {
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "berth-chart-")
	if err == nil {
		berth = filepath.Join(dir, "berth")
		build := exec.Command("go", "build", "-C", "../../../cmd/berth", "-o", berth, ".")
		build.Env, build.Stderr = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0"), os.Stderr
		err = build.Run()
	}
	code := 1
	if err != nil {
		fmt.Fprintln(os.Stderr, "the binary cannot be built:", err)
	} else {
		code = m.Run()
	}
	os.RemoveAll(dir)
	os.Exit(code)
}
