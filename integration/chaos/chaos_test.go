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
	seed       = flag.Uint64("seed", 1, "seed of the schedule and of the load; 0 for a random one")
	minutes    = flag.Float64("minutes", 0.8, "duration of the faults")
	namespaces = flag.Bool("namespaces", false, "run half of the time in network namespaces, if they are permitted")
	clock      = flag.Bool("clock", false, "step the clock of this machine, which needs root and affects all its processes")
	old        = flag.String("old", "", "an older `berth` binary, for TestUpgrade")
	secured    = flag.Bool("tls", false, "encrypt all connections of the cluster")
	keep       = flag.String("keep", "", "directory for the logs and data of a failed run")
)

// Under all faults, no acknowledged change is lost, and no worker is leased or started
// twice. Callers notice at most a pause.
func TestChaos(t *testing.T) {
	runFaults(t, Options{})
}

// TestChaosInNamespaces runs the same faults, with each process in a network namespace of
// its own, where every packet can be cut. Only make chaos runs it, because a short run has
// no time for both tests.
func TestChaosInNamespaces(t *testing.T) {
	if !*namespaces {
		t.Skip("-namespaces is not set: run make chaos")
	}
	if requestedParts().namespaces.refused {
		t.Skip("network namespaces are not permitted: they require root")
	}
	runFaults(t, Options{Namespaces: true})
}

// Half of the processes start with an older version. During the faults, they are upgraded,
// rolled back and upgraded again.
func TestUpgrade(t *testing.T) {
	if *old == "" {
		t.Skip("-old is not set: run make upgrade")
	}
	runFaults(t, Options{Old: *old})
}

// If -keep is set, a pause of longGap makes the test keep its logs. Such a pause is not a
// violation, because faults may coincide and the machine may be slow.
const longGap = 30 * time.Second

// left lists the parts that no run had. TestMain prints this list at the end, where a long
// output does not hide it.
var left []string

// requestedParts returns the parts that the flags request and that this machine permits.
var requestedParts = sync.OnceValue(func() *parts {
	p := newParts(*namespaces, *clock)
	p.try()
	left = p.left()
	return p
})

func runFaults(t *testing.T, o Options) {
	if *seed == 0 {
		*seed = rand.Uint64()
	}
	duration := requestedParts().share(time.Duration(*minutes * float64(time.Minute)).Round(time.Second))
	t.Logf("to repeat this run: -seed=%d -minutes=%g", *seed, *minutes)
	dir, err := os.MkdirTemp(*keep, "chaos-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), duration+5*patience)
	defer cancel()
	o.Binary, o.Dir, o.Seed, o.Duration, o.Clock, o.TLS, o.Log = binary, dir, *seed, duration,
		requestedParts().clock.played(), *secured, t.Logf
	report, err := Run(ctx, o)
	if err != nil {
		t.Errorf("run failed: %v", err)
	}
	if report != nil {
		t.Log(report)
		for _, violation := range report.Violations {
			t.Error(violation)
		}
	}
	long := *keep != "" && report != nil && report.Gap > longGap
	if !t.Failed() && !long {
		os.RemoveAll(dir) // the result does not matter
		return
	}
	if report != nil {
		for _, f := range report.Faults {
			t.Logf("%v: %s, until %v %s", f.Fault, f.Victim, f.Ended.Round(time.Millisecond), f.Skipped)
		}
	}
	t.Logf("seed %d; logs and data are in %s", *seed, filepath.Clean(dir))
}
