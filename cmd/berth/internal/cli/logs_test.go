package cli

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// shared is a buffer that a test reads while a command writes it.
type shared struct {
	mu      sync.Mutex
	text    bytes.Buffer
	written chan struct{}
}

func (s *shared) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.written <- struct{}{}:
	default:
	}
	return s.text.Write(text)
}

func (s *shared) until(t *testing.T, text string) {
	t.Helper()
	for {
		s.mu.Lock()
		found := strings.Contains(s.text.String(), text)
		s.mu.Unlock()
		if found {
			return
		}
		select {
		case <-s.written:
		case <-t.Context().Done():
			t.Fatalf("no %q", text)
		}
	}
}

// TestLogsFollowAStage checks that a follower of a stage waits for workers that wait, marks each
// line, follows the next number of a restarted worker, and ends when all workers have ended.
func TestLogsFollowAStage(t *testing.T) {
	f := newFake(t)
	f.reservations = []*berthv1.Reservation{{Job: "train", Stage: "gpu", Name: "main", Uid: "1-1", Count: 2,
		State:   berthv1.Reservation_QUEUED,
		Workers: []*berthv1.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 1}}}}
	out, errs := &shared{written: make(chan struct{}, 1)}, &shared{written: make(chan struct{}, 1)}
	a := &app{Streams: Streams{In: &bytes.Buffer{}, Out: out, Err: errs, Now: f.clock, Env: f.environment}, every: 1}
	code := make(chan int, 1)
	go func() { code <- Run(t.Context(), newRoot(a), []string{"logs", "train/gpu", "-f"}) }()
	errs.until(t, "train/gpu is QUEUED; waiting")

	f.mu.Lock()
	f.reservations[0].State = berthv1.Reservation_ACTIVE
	f.mu.Unlock()
	f.output(t, strings.Fields(`train/gpu/0.1 STDOUT ex-1 0 ended zero\nlast`))
	f.output(t, strings.Fields(`train/gpu/1.1 STDOUT ex-2 0 ended one\n`))
	errs.until(t, "train/gpu/0.1 has ended")
	errs.until(t, "train/gpu/1.1 has ended")

	f.mu.Lock()
	f.reservations = append(f.reservations, &berthv1.Reservation{Job: "train", Stage: "gpu", Name: "main", Uid: "1-2",
		State: berthv1.Reservation_ACTIVE, Count: 1, Workers: []*berthv1.WorkerID{{Index: 1, Number: 2}}})
	f.mu.Unlock()
	f.output(t, strings.Fields(`train/gpu/1.2 STDOUT ex-1 0 ended again\n`))
	errs.until(t, "train/gpu/1.2 has ended")

	f.mu.Lock()
	for _, r := range f.reservations {
		r.State = berthv1.Reservation_COMPLETED
	}
	f.mu.Unlock()
	if c := <-code; c != 0 {
		t.Errorf("exit %d: %s", c, errs.text.String())
	}
	lines := strings.Split(strings.TrimSpace(out.text.String()), "\n")
	slices.Sort(lines)
	if got := strings.Join(lines, "|"); got != "[0.1] last|[0.1] zero|[1.1] one|[1.2] again" {
		t.Errorf("%q", got)
	}
}

// A follower of a stage whose reservation is CANCELLING does not say that it waits for workers: none
// begins any more.
func TestLogsFollowAStageThatEnds(t *testing.T) {
	f := newFake(t)
	f.reservations = []*berthv1.Reservation{{Job: "train", Stage: "gpu", Name: "main", Uid: "1-1", Count: 1,
		State: berthv1.Reservation_CANCELLING, Reason: new(string(fault.ReasonCompletesWith)),
		Workers: []*berthv1.WorkerID{{Index: 0, Number: 1}}}}
	f.output(t, strings.Fields(`train/gpu/0.1 STDOUT ex-1 0 ended zero\n`))
	out, errs := &shared{written: make(chan struct{}, 1)}, &shared{written: make(chan struct{}, 1)}
	a := &app{Streams: Streams{In: &bytes.Buffer{}, Out: out, Err: errs, Now: f.clock, Env: f.environment}, every: 1}
	code := make(chan int, 1)
	go func() { code <- Run(t.Context(), newRoot(a), []string{"logs", "train/gpu", "-f"}) }()
	errs.until(t, "train/gpu/0.1 has ended")
	f.mu.Lock()
	f.reservations[0].State = berthv1.Reservation_COMPLETED
	f.mu.Unlock()
	if c := <-code; c != 0 || strings.Contains(errs.text.String(), "waiting") {
		t.Errorf("exit %d: %s", c, errs.text.String())
	}
}
