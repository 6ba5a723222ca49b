package sim

import (
	"bytes"
	"cmp"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/inventory"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play only this seed and print its transcript")
	seedsFlag = flag.Uint64("seeds", 500, "number of seeds to play")
	fromFlag  = flag.String("from", "1", "first seed to play, or random")
	allFlag   = flag.Bool("all", false, "continue after a seed has failed")
	stepsFlag = flag.Int("steps", 1500, "number of steps of a seed before its faults stop")
)

// TestSeeds plays clusters from seeds and checks the invariants after every step. The flag
// -seed repeats a failed seed and prints its transcript.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		if err := NewWorld(*seedFlag, os.Stdout).Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		return
	}
	from, err := firstSeed(*fromFlag)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("seeds %d to %d (make sim FROM=%d SEEDS=%d)", from, from+*seedsFlag-1, from, *seedsFlag)
	// The garbage collector may run rarely, because each world is small and short-lived.
	defer debug.SetGCPercent(debug.SetGCPercent(4000))
	seeds := make(chan uint64)
	var players sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		players.Go(func() {
			for seed := range seeds {
				if err := NewWorld(seed, io.Discard).Run(*stepsFlag); err != nil {
					t.Errorf("seed %d: %v (transcript: %s; make sim SEED=%d)", seed, err, keep(seed), seed)
				}
			}
		})
	}
	for seed := from; seed < from+*seedsFlag && (*allFlag || !t.Failed()); seed++ {
		seeds <- seed
	}
	close(seeds)
	players.Wait()
}

// maxRandomSeed limits random first seeds, so that seeds are short enough to type.
const maxRandomSeed = 1_000_000_000_000

// firstSeed parses the flag -from. A random first seed is at least 1, because -seed=0
// stands for no seed.
func firstSeed(from string) (uint64, error) {
	if from == "random" {
		return 1 + rand.Uint64N(maxRandomSeed), nil
	}
	first, err := strconv.ParseUint(from, 10, 64)
	if err != nil || first == 0 {
		return 0, fmt.Errorf("-from must be random or a number of at least 1, got %q", from)
	}
	return first, nil
}

func TestFirstSeed(t *testing.T) {
	if first, err := firstSeed("990000001"); err != nil || first != 990000001 {
		t.Errorf("firstSeed(990000001) = %d, %v", first, err)
	}
	for _, from := range []string{"", "0", "-1", "soon"} {
		if first, err := firstSeed(from); err == nil {
			t.Errorf("firstSeed(%q) = %d, want an error", from, first)
		}
	}
	starts := map[uint64]bool{}
	for range 10 {
		first, err := firstSeed("random")
		if err != nil || first == 0 || first > maxRandomSeed {
			t.Fatalf("firstSeed(random) = %d, %v", first, err)
		}
		starts[first] = true
	}
	if len(starts) == 1 {
		t.Error("ten random first seeds are equal")
	}
}

// keep repeats a failed seed and writes its transcript to a file.
func keep(seed uint64) string {
	var transcript bytes.Buffer
	_ = NewWorld(seed, &transcript).Run(*stepsFlag) // fails with the same error
	name := filepath.Join(os.TempDir(), fmt.Sprintf("berth-sim-%d.txt", seed))
	if err := os.WriteFile(name, transcript.Bytes(), 0o600); err != nil {
		return err.Error()
	}
	return name
}

// TestFullStore checks that some seeds fill the store up to its quota, and that calls then
// get the error of a full store.
func TestFullStore(t *testing.T) {
	var full full
	for seed := uint64(1); full.reported == 0 && seed <= 20; seed++ {
		w := NewWorld(seed, io.Discard)
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatal(err)
		}
		full.refused += w.full.refused
		full.reported += w.full.reported
	}
	if full.reported == 0 {
		t.Errorf("%d calls of the full store failed, but no call got that error", full.refused)
	}
}

// If the calls of rogue clients are rejected, they change nothing: the run is the same as
// without them. At its end, each seed checks that leasing continues after accepted calls.
func TestRejectedRogueCallsChangeNothing(t *testing.T) {
	sendsValid, sent, refused := 0, 0, 0
	for seed := uint64(1); seed <= 12; seed++ {
		var with, without bytes.Buffer
		w, v := NewWorld(seed, &with), NewWorld(seed, &without)
		v.rogueClient.draws = nil
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sent, refused = sent+w.rogueClient.sent, refused+w.rogueClient.refused
		if w.rogueClient.sendsValid {
			sendsValid++
			continue
		}
		if err := v.Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !bytes.Equal(with.Bytes(), without.Bytes()) {
			t.Errorf("seed %d plays differently with rogue clients", seed)
		}
	}
	if sent == 0 || refused == 0 {
		t.Errorf("rogue clients sent %d calls, %d were rejected", sent, refused)
	}
	if sendsValid == 0 {
		t.Error("no seed has a rogue client that sends valid requests")
	}
}

// A leader learns nothing from a call that it rejects: not that its own term is over, and not
// that the registry has a new term. Only clients that also send valid requests call such a leader.
func TestRejectedRogueCallsTeachNothing(t *testing.T) {
	deposed := func(p *interleaving) { p.w.evict(model.ServiceExecutorState) }
	for name, tt := range map[string]struct {
		before     func(p *interleaving)
		until      time.Duration
		sendsValid bool
		want       int
	}{
		"current view":                     {want: 1},
		"own term over":                    {before: deposed},
		"own term over, valid requests":    {before: deposed, sendsValid: true, want: 1},
		"new term of the registry":         {before: newRegistry},
		"new registry, valid requests":     {before: newRegistry, sendsValid: true, want: 1},
		"the only other request has ended": {until: -time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			p := newInterleaving(1, nil, io.Discard)
			n := p.w.replicas[model.ServiceExecutorState][0].(*node[*inventory.Core])
			if tt.before != nil {
				tt.before(p)
			}
			p.w.faultsStopped, p.w.directed = false, false
			p.w.rogueClient = rogueClient{draws: func(int) int { return 0 }, sendsValid: tt.sendsValid}
			n.ask(inventory.Register{ID: "h"}, p.w.now.Add(cmp.Or(tt.until, time.Second)), func(any, error) {})
			n.round(true)
			if p.w.failure != nil || p.w.rogueClient.sent != tt.want {
				t.Errorf("the rogue client sent %d calls, want %d; failure: %v", p.w.rogueClient.sent, tt.want, p.w.failure)
			}
		})
	}
}

// newRegistry lets the registry lead in a new term, which no other service's view shows.
func newRegistry(p *interleaving) {
	p.w.evict(model.ServiceRegistry)
	r := p.w.replicas[model.ServiceRegistry][0]
	for term := p.w.leaderTerm(model.ServiceRegistry); term == 0; term = p.w.leaderTerm(model.ServiceRegistry) {
		r.turn()
	}
}

// TestSeedsPlaySecondAgent checks that some seeds play a second agent of an executor. The
// second agent is rejected while the first agent is present. When the first agent is LOST,
// the second agent takes over, and the first agent learns that and exits.
func TestSeedsPlaySecondAgent(t *testing.T) {
	var refusals, exits int
	for seed := uint64(1); (refusals == 0 || exits == 0) && seed <= 300; seed++ {
		w := NewWorld(seed, io.Discard)
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatal(err)
		}
		refusals, exits = refusals+w.refusals, exits+w.exits
	}
	if refusals == 0 || exits == 0 {
		t.Errorf("%d registrations were rejected, %d agents exited", refusals, exits)
	}
}

// TestSameSeedSameRun checks that a seed determines a run.
func TestSameSeedSameRun(t *testing.T) {
	var first, second bytes.Buffer
	for _, out := range []io.Writer{&first, &second} {
		if err := NewWorld(7, out).Run(*stepsFlag); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs of the same seed differ")
	}
}
