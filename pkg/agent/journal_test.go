package agent

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

func tombstoneOf(i int) tombstone {
	worker := model.Worker{Job: "job", Stage: "stage", ID: model.WorkerID{Index: int32(i), Number: 1}}
	return tombstone{identity: identity{worker, 7}, At: time.Unix(int64(i), 0).UTC()}
}

func reopen(t *testing.T, dir string) (*journal, []tombstone) {
	t.Helper()
	j, kept, err := openJournal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.close() })
	return j, kept
}

// A journal that is opened again has all appended lines. It drops a line that was cut off.
func TestJournal(t *testing.T) {
	dir := t.TempDir()
	j, kept := reopen(t, dir)
	if len(kept) > 0 {
		t.Error(kept)
	}
	var want []tombstone
	for i := range 3 {
		want = append(want, tombstoneOf(i))
		if err := j.append(want[i], want); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.file.WriteAt([]byte(`{"job":"cut`), j.end); err != nil {
		t.Fatal(err)
	}
	_, kept = reopen(t, dir)
	if diff := cmp.Diff(want, kept, cmpopts.EquateComparable(tombstone{})); diff != "" {
		t.Error(diff)
	}
	// The reopened file accepts more lines.
	j, _ = reopen(t, dir)
	if err := j.append(tombstoneOf(3), kept); err != nil {
		t.Fatal(err)
	}
	if _, kept = reopen(t, dir); len(kept) != 4 {
		t.Error(kept)
	}
}

// The size of the journal file stays limited.
func TestJournalRewrite(t *testing.T) {
	dir := t.TempDir()
	j, _ := reopen(t, dir)
	var many []tombstone
	for i := range 2 * tombstoneCount {
		many = append(many, tombstoneOf(i))
	}
	if err := j.rewrite(many); err != nil {
		t.Fatal(err)
	}
	// Afterwards all of the tombstones except one were dropped.
	kept := many[:1]
	if err := j.append(tombstoneOf(1), kept); err != nil {
		t.Fatal(err)
	}
	if _, kept = reopen(t, dir); len(kept) != 2 {
		t.Errorf("%d lines for two tombstones", len(kept))
	}
}

// If a stop cannot be made durable, the agent does not confirm it.
func TestStopNotDurable(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "agent")
	cfg := Config{ID: "host", Dir: dir, Driver: Simulated{}, Conn: (*grpc.ClientConn)(nil), Log: quiet()}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	a.ledger.begin(1, 0)
	if err := a.journal.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	stop := stopOf(submit(0, 1, ""), 0)
	if _, err := tryStop(t.Context(), a, stop); !fault.Is(err, fault.ReasonUnavailable) {
		t.Error(err)
	}
	if err := os.Mkdir(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	if answer, err := tryStop(t.Context(), a, stop); err != nil || answer.Worker.State != berthv1.Assignment_EVICTED {
		t.Error(answer, err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	a.ledger.begin(2, 0)
	if _, err := trySubmit(t.Context(), a, submit(0, 2, "")); !fault.Is(err, fault.ReasonStopped) {
		t.Error(err)
	}
}

func TestDetect(t *testing.T) {
	v, err := Detect(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cpu", "memory", "disk", "slots"} {
		if v[name] <= 0 {
			t.Errorf("%s = %d", name, v[name])
		}
	}
	if _, err := Detect("/no/such/place"); err == nil {
		t.Error("Detect accepted a directory that does not exist")
	}
	for text, want := range map[string]int64{"max 100000\n": 8000, "150000 100000\n": 1500, "": 8000, "1 0": 8000} {
		if got := cpuMax(text, 8000); got != want {
			t.Errorf("cpu.max %q = %d, want %d", text, got, want)
		}
	}
	for text, want := range map[string]int64{"max\n": 99, "42\n": 42} {
		if got := memoryMax(text, 99); got != want {
			t.Errorf("memory.max %q = %d, want %d", text, got, want)
		}
	}
	if got, err := memTotal("MemFree: 1 kB\nMemTotal:       16 kB\n"); got != 16384 || err != nil {
		t.Error(got, err)
	}
	if _, err := memTotal("MemFree: 1 kB\n"); err == nil {
		t.Error("no total")
	}
}

// The name of a program may look like the fields that follow it.
func TestParseStat(t *testing.T) {
	got, err := parseStat("42 (a) R 1 2 (b) S 7 8 9 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 777 1\n")
	if want := (stat{state: 'S', parent: 7, session: 9, start: 777}); err != nil || got != want {
		t.Error(got, err)
	}
	if _, err := parseStat("42 (a) S 7"); err == nil {
		t.Error("a short line is accepted")
	}
}

func TestPause(t *testing.T) {
	p := pause{first: 2 * time.Millisecond, last: time.Second}
	for i, full := range []time.Duration{2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000} {
		full *= time.Millisecond
		if got := p.advance(); got < full/2 || got > full {
			t.Errorf("pause %d is %v, want %v to %v", i, got, full/2, full)
		}
	}
	p.reset()
	if got := p.advance(); got > p.first {
		t.Errorf("after reset %v", got)
	}
}
