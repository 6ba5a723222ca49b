package agent

import (
	"math"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// A sender that does not know the nonce of the registration cannot start or stop a worker.
// It also cannot make the agent refuse its real leader.
func TestRequestWithoutTheNonceIsRejected(t *testing.T) {
	c := newControl(time.Hour)
	a, _, _ := simulatedAgent(t, c, Config{})
	running := submit(0, 1, "")
	mustSubmit(t, a, running)
	for name, nonce := range map[string]string{"none": "", "another": "another",
		"a part of it": a.ledger.nonce[:len(a.ledger.nonce)-1]} {
		start, stop := submit(1, 1, ""), stopOf(running, 0)
		start.Term, stop.Term, start.Nonce, stop.Nonce = math.MaxInt64, math.MaxInt64, nonce, nonce
		_, err1 := a.SubmitTask(t.Context(), start)
		_, err2 := a.StopTask(t.Context(), stop)
		for _, err := range []error{err1, err2} {
			if f := fault.Of(err); f == nil || f.Kind != fault.Denied || f.Reason != fault.ReasonPermissionDenied {
				t.Errorf("%s: %v", name, err)
			}
		}
		start.Worker = nil // The nonce is checked before everything else.
		if _, err := a.SubmitTask(t.Context(), start); !fault.Is(err, fault.ReasonPermissionDenied) {
			t.Errorf("%s: %v", name, err)
		}
	}
	a.mu.Lock()
	entries := len(a.ledger.entries)
	a.mu.Unlock()
	if entries != 1 {
		t.Errorf("%d workers", entries)
	}
	mustSubmit(t, a, submit(2, 1, ""))
	// A request with the nonce raises the term at once.
	later := submit(3, 1, "")
	later.Term = 6
	mustSubmit(t, a, later)
	if _, err := trySubmit(t.Context(), a, submit(4, 1, "")); !fault.Is(err, fault.ReasonLowerTerm) {
		t.Error(err)
	}
}

// Nonces are random and long, and no two agents have the same nonce.
func TestNoncesAreRandom(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		n := newNonce()
		if len(n) < 26 || seen[n] {
			t.Fatalf("%q", n)
		}
		seen[n] = true
	}
}
