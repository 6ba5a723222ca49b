package chaos

import (
	"context"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

var (
	seed       = flag.Uint64("seed", 1, "seed of the schedule and of the load; 0 for one that is made up")
	minutes    = flag.Float64("minutes", 0.8, "how long things are broken")
	namespaces = flag.Bool("namespaces", false, "run half of the time in network namespaces, where they are permitted")
	clock      = flag.Bool("clock", false, "step the time of day of this machine, which takes root and disturbs whatever else runs here")
	old        = flag.String("old", "", "an older program `berth`, for TestUpgrade")
	keep       = flag.String("keep", "", "directory to keep logs and data in when something is wrong")
)

// Whatever is broken, and whenever: nothing that was acknowledged is lost,
// nothing is leased or started twice, and callers notice a pause at most.
func TestChaos(t *testing.T) {
	breakAll(t, Options{})
}

// The same on hosts of their own, where every packet can be cut. It is for make
// chaos: the short run has no time for both.
func TestChaosInNamespaces(t *testing.T) {
	if !*namespaces {
		t.Skip("-namespaces is not given: make chaos")
	}
	if asked().namespaces.refused {
		t.Skip("network namespaces are not permitted here: they need root")
	}
	breakAll(t, Options{Namespaces: true})
}

// Half of the processes are of an older version, are upgraded while things break,
// rolled back, and upgraded again.
func TestUpgrade(t *testing.T) {
	if *old == "" {
		t.Skip("-old is not given: make upgrade")
	}
	breakAll(t, Options{Old: *old})
}

// worthALook is a pause so long that the logs are kept, where that was asked for,
// although it is no violation: faults may meet, and the machine be slow.
const worthALook = 30 * time.Second

// left is what TestMain prints when all is over, where a long output does not hide
// it: the parts that no run had.
var left []string

// asked is what the flags ask for, and this machine permits.
var asked = sync.OnceValue(func() *parts {
	p := newParts(*namespaces, *clock)
	p.try()
	left = p.left()
	return p
})

func breakAll(t *testing.T, o Options) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	duration := asked().share(time.Duration(*minutes * float64(time.Minute)).Round(time.Second))
	t.Logf("to play it again: -seed=%d -minutes=%g", *seed, *minutes)
	dir, err := os.MkdirTemp(*keep, "chaos-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), duration+5*patience)
	defer cancel()
	o.Binary, o.Dir, o.Seed, o.Duration, o.Clock, o.Log = binary, dir, *seed, duration, asked().clock.played(), t.Logf
	report, err := Run(ctx, o)
	if err != nil {
		t.Errorf("the run could not be done: %v", err)
	}
	if report != nil {
		t.Log(report)
		for _, violation := range report.Violations {
			t.Error(violation)
		}
	}
	long := *keep != "" && report != nil && report.Gap > worthALook
	if !t.Failed() && !long {
		os.RemoveAll(dir) // what is left of it is in nobody's way
		return
	}
	if report != nil {
		for _, f := range report.Faults {
			t.Logf("%v: %s, until %v %s", f.Fault, f.Victim, f.Ended.Round(time.Millisecond), f.Skipped)
		}
	}
	t.Logf("seed %d; logs and data are in %s", *seed, filepath.Clean(dir))
}
