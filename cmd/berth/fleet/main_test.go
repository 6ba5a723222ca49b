package fleet

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

// The test's binary is also the program berth, when it is started as a child of
// the test: so the processes of a fleet are those of the code under test.
func TestMain(m *testing.M) {
	if os.Getenv(asBerth) != "" {
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
	goleak.VerifyTestMain(m)
}

const asBerth = "FLEET_TEST_AS_BERTH"
