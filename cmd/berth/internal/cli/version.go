package cli

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"

	"berth.dev/pkg/process"
)

func (a *app) version() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  berth version\n  berth version -o json",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := thisBuild()
			return a.value(output, b, b.String()+"\n", b.Version+"\n")
		},
	}
	outputFlag(cmd.Flags(), &output, textFormats...)
	return cmd
}

// build says from what berth was built.
type build struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
}

func thisBuild() build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(process.Version, info)
}

func buildOf(version string, info *debug.BuildInfo) build {
	return build{version, process.Commit(info), info.GoVersion}
}

// String returns the text of the command version.
func (b build) String() string {
	return fmt.Sprintf("berth %s\ncommit %s\n%s", b.Version, b.Commit, b.Go)
}
