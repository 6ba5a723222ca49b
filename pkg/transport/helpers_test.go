package transport_test

import (
	"os"
	"testing"
	"time"
)

// await polls until a condition holds. Only the deadline of the test ends the wait.
func await(t *testing.T, condition func() bool) {
	t.Helper()
	for !condition() {
		select {
		case <-t.Context().Done():
			t.Fatal("the test ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
