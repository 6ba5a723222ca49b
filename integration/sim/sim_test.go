package sim

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "play this seed only, and print its transcript")
	seedsFlag = flag.Uint64("seeds", 500, "how many seeds to play")
	fromFlag  = flag.Uint64("from", 1, "the first of the seeds to play")
	stepsFlag = flag.Int("steps", 1500, "how many steps a seed has before its faults stop")
)

// TestSeeds plays whole clusters from seeds and checks the invariants after
// every step. A seed that fails is played again with -seed for its transcript.
func TestSeeds(t *testing.T) {
	if *seedFlag != 0 {
		if err := NewWorld(*seedFlag, os.Stdout).Run(*stepsFlag); err != nil {
			t.Fatalf("seed %d: %v", *seedFlag, err)
		}
		return
	}
	// Each world is small and soon gone.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
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
	for seed := *fromFlag; seed < *fromFlag+*seedsFlag && !t.Failed(); seed++ {
		seeds <- seed
	}
	close(seeds)
	players.Wait()
}

// keep plays a seed that failed once more, and writes its transcript where it
// can be read.
func keep(seed uint64) string {
	var transcript bytes.Buffer
	_ = NewWorld(seed, &transcript).Run(*stepsFlag) // it fails as it did before
	name := filepath.Join(os.TempDir(), fmt.Sprintf("berth-sim-%d.txt", seed))
	if err := os.WriteFile(name, transcript.Bytes(), 0o600); err != nil {
		return err.Error()
	}
	return name
}

// TestTheStoreIsFull says that seeds play a store that has reached its quota, and
// that calls are told so.
func TestTheStoreIsFull(t *testing.T) {
	var full full
	for seed := uint64(1); full.told == 0 && seed <= 20; seed++ {
		w := NewWorld(seed, io.Discard)
		if err := w.Run(*stepsFlag); err != nil {
			t.Fatal(err)
		}
		full.refused += w.full.refused
		full.told += w.full.told
	}
	if full.told == 0 {
		t.Errorf("%d calls of the store found no room, and nobody was told so", full.refused)
	}
}

// TestSameSeedSameRun says that a seed is all there is to a run.
func TestSameSeedSameRun(t *testing.T) {
	var first, second bytes.Buffer
	for _, out := range []io.Writer{&first, &second} {
		if err := NewWorld(7, out).Run(*stepsFlag); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs of one seed differ")
	}
}
