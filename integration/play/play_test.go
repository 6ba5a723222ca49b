package play

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"berth.dev/testkit/transcript"
)

// The scenarios in the simulator. The files are written from here.
func TestSimulated(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string {
		var world bytes.Buffer
		after, err := Play(func(o Options) (Cluster, error) { return NewSimulated(o, &world), nil }, text)
		if err != nil {
			t.Fatalf("%v\nthe world: %s", err, tail(world.Bytes()))
		}
		return after
	})
}

// playLong is the environment's word that what takes many minutes is to be played
// on real processes too.
const playLong = "BERTH_PLAY_LONG"

// The same on real processes with real etcd.
func TestProcesses(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string {
		t.Parallel() // most of the time they wait
		dir := t.TempDir()
		after, err := Play(func(o Options) (Cluster, error) {
			if o.Long && os.Getenv(playLong) == "" {
				t.Skipf("it takes many minutes: set %s", playLong)
			}
			return StartProcesses(binary, dir, o)
		}, text)
		if err != nil {
			t.Errorf("%v", err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
				for _, log := range logs {
					written, _ := os.ReadFile(log)
					t.Logf("%s:\n%s", filepath.Base(log), tail(written))
				}
			}
		})
		return after
	})
}

func tail(text []byte) []byte {
	const enough = 3000
	if len(text) > enough {
		text = text[len(text)-enough:]
	}
	return text
}
