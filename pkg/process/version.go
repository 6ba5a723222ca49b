package process

// Version of the build, set by the linker.
var Version = "dev"
