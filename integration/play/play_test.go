package play

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"berth.dev/testkit/transcript"
)

// TestSimulated plays the files in the simulator. With -rewrite, it writes the files.
func TestSimulated(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string {
		var clusterLog bytes.Buffer
		after, err := Play(func(o Options) (Cluster, error) { return NewSimulated(o, &clusterLog), nil }, text)
		if err != nil {
			t.Fatalf("%v\ncluster transcript: %s", err, tail(clusterLog.Bytes()))
		}
		return after
	})
}

// playLong is an environment variable. If it is set, TestProcesses also plays the files
// that take many minutes.
const playLong = "BERTH_PLAY_LONG"

// TestProcesses plays the files on real processes with a real etcd.
func TestProcesses(t *testing.T) {
	transcript.Run(t, func(t *testing.T, text string) string {
		t.Parallel() // the clusters mostly wait
		dir := t.TempDir()
		after, err := Play(func(o Options) (Cluster, error) {
			if o.Long && os.Getenv(playLong) == "" {
				t.Skipf("takes many minutes: set %s", playLong)
			}
			o.Timely = *acceptance
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
	const limit = 3000
	if len(text) > limit {
		text = text[len(text)-limit:]
	}
	return text
}
