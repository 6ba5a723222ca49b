package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"berth.dev/pkg/process"
)

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				info = &debug.BuildInfo{}
			}
			return a.print(versionText(process.Version, info))
		},
	}
}

// versionText is the version, the commit it was built from and Go's version.
func versionText(version string, info *debug.BuildInfo) string {
	commit, changed := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			commit = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			changed = ", with changes"
		}
	}
	if commit == "" {
		commit = "unknown"
	}
	return fmt.Sprintf("berth %s\ncommit %s%s\n%s", version, commit, changed, info.GoVersion)
}
