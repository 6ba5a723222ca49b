// Package asberth has the binary of a test be the program berth too, when it is
// started as a child of the test: so the processes that a test starts are those of
// the code under test.
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

// Main is the TestMain of a package whose tests start processes of Berth: it runs
// the program, or the tests and looks whether they left a goroutine.
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

// Children has what the test starts from its own binary be the program.
func Children(t testing.TB) { t.Setenv(variable, "1") }
