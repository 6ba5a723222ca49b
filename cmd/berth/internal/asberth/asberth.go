// Package asberth makes the binary of a test run the program berth if the test starts it as a
// child. So the processes of a test run the code under test.
package asberth

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"berth.dev/cmd/berth/internal/serve"
	"berth.dev/pkg/process"
)

const variable = "TEST_AS_BERTH"

// Main is the TestMain of a package whose tests start Berth's processes. It runs the program, or
// the tests and a check for leaked goroutines.
func Main(m *testing.M) {
	if os.Getenv(variable) == "" {
		goleak.VerifyTestMain(m)
		return
	}
	root := &cobra.Command{Use: "berth", SilenceUsage: true, SilenceErrors: true}
	root.AddCommand(serve.Commands()...)
	ctx, stop := process.SignalContext(context.Background())
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Children makes the test's binary run the program in child processes.
func Children(t testing.TB) { t.Setenv(variable, "1") }
