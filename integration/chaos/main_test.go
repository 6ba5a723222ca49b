package chaos

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"berth.dev/integration/built"
)

// binary is the program `berth`.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(built.Run(func(path string) int {
		binary = path
		code := m.Run()
		for _, line := range left {
			fmt.Println(line)
		}
		return code
	}))
}
