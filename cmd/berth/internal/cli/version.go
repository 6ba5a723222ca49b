package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"berth.dev/pkg/process"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  berth version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			return a.print(versionText(process.Version, info))
		},
	}
}

// versionText returns the version of berth, its commit and the version of Go.
func versionText(version string, info *debug.BuildInfo) string {
	return fmt.Sprintf("berth %s\ncommit %s\n%s", version, process.Commit(info), info.GoVersion)
}
