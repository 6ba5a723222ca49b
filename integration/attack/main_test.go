package attack

import (
	"flag"
	"os"
	"testing"

	"berth.dev/integration/built"
)

// floods has tests send as much as an attacker would; `make attack` sets it.
var floods = flag.Bool("floods", false, "flood with as much as an attacker would")

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		return m.Run()
	}))
}
