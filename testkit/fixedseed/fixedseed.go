// Package fixedseed makes tests that draw random input draw the same input each time, so that
// they never fail by chance. Test packages with property tests import it for its side effect.
// With RANDOM_SEEDS=1, as in `make nightly`, tests draw random seeds instead, and a failure
// names its seed.
package fixedseed

import (
	"flag"
	"math/rand/v2"
	"os"

	_ "pgregory.net/rapid" // defines the flag
)

// The flag -rapid.seed and the variable RAPID_SEED of package rapid override the fixed seed.
func init() {
	if Random() || os.Getenv("RAPID_SEED") != "" {
		return
	}
	if err := flag.Set("rapid.seed", "1"); err != nil {
		panic(err)
	}
}

// Random reports whether tests draw random seeds.
func Random() bool { return os.Getenv("RANDOM_SEEDS") == "1" }

// Or returns the seed that a test was given, or a random or the fixed seed if it was given 0.
func Or(seed uint64) uint64 {
	switch {
	case seed != 0:
		return seed
	case Random():
		return 1 + rand.Uint64N(1<<40)
	}
	return 1
}
