package fixedseed

import (
	"flag"
	"os"
	"testing"
)

func TestSeedIsFixedUnlessRandomSeedsAreRequested(t *testing.T) {
	if os.Getenv("RAPID_SEED") == "" {
		if seed := flag.Lookup("rapid.seed").Value.String(); (seed == "0") != Random() {
			t.Errorf("-rapid.seed is %s, random: %v", seed, Random())
		}
	}
	t.Setenv("RANDOM_SEEDS", "")
	if Or(0) != 1 || Or(7) != 7 {
		t.Errorf("Or(0) = %d, Or(7) = %d", Or(0), Or(7))
	}
	t.Setenv("RANDOM_SEEDS", "1")
	if a, b := Or(0), Or(0); a == b || Or(7) != 7 {
		t.Errorf("random: Or(0) = %d and %d, Or(7) = %d", a, b, Or(7))
	}
}
