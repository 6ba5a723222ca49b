// Package asberth guarantees that the processes of a test run the code under test. If a test
// starts its own binary as a child process, the binary runs the program berth.
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

// Main is the TestMain of a package whose tests start Berth's processes. In a child
// process, Main runs the program berth. Otherwise it runs the tests and then checks for
// leaked goroutines.
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

// Children sets an environment variable for child processes, so that the test binary runs
// the program berth in them.
func Children(t testing.TB) { t.Setenv(variable, "1") }
