package client_test

import (
	"flag"
	"os"

	_ "pgregory.net/rapid" // defines the flag
)

// The property tests draw the same input each time, as those of all other modules: see
// testkit/fixedseed, which this module must not import.
func init() {
	if os.Getenv("RANDOM_SEEDS") == "1" || os.Getenv("RAPID_SEED") != "" {
		return
	}
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}
