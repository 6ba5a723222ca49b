package attack

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"berth.dev/integration/built"
)

var (
	// floods makes the tests send as much as a real attacker would. `make attack` sets it.
	floods = flag.Bool("floods", false, "flood with the full numbers of an attack")
	// acceptance makes the tests check how soon leasing works again. `make acceptance` sets
	// it.
	acceptance = flag.Bool("acceptance", false, "assert the time limits of the acceptance checks")
)

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		code := m.Run()
		complete := flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == ""
		if complete && len(unsent()) > 0 {
			fmt.Fprintln(os.Stderr, "no attack in plain text sends these calls of attackCalls:", unsent())
			code = 1
		}
		if err := shared.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}))
}
