package process

import "runtime/debug"

// Version of the build: what the linker was given, otherwise what Go knows of the
// program's module, and dev where that is nothing.
var Version string

func init() {
	if Version != "" {
		return
	}
	Version = "dev"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		Version = info.Main.Version
	}
}
