package process

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// Version is the version of the build. If the Makefile built the program, it is the
// content of the file VERSION. Otherwise it is the version of the module, or "dev" if Go
// does not know the version.
var Version string

// commit is set in released programs. Their builds do not need git.
var commit string

func init() {
	if Version != "" {
		return
	}
	Version = "dev"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		Version = strings.TrimPrefix(info.Main.Version, "v") // as in the file VERSION
	}
}

// showBuild emits the build as labels of a constant, as exporters usually do.
func showBuild(f Scrape) {
	recorded := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded = Commit(info)
	}
	f.Gauge("berth_build_info", "Version, commit and version of Go of the process; always 1.", 1,
		"version", Version, "commit", recorded, "go_version", runtime.Version())
}

// Commit returns the commit of a build, with a note if the source had uncommitted
// changes. It returns "unknown" if Go did not record the commit.
func Commit(info *debug.BuildInfo) string {
	if commit != "" {
		return commit
	}
	revision, changed := "unknown", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			changed = ", with changes"
		}
	}
	return revision + changed
}
