package transport_test

import (
	"os"
	"testing"
	"time"

	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
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

// early returns the files of a service whose certificate becomes valid after a time.
func early(t *testing.T, a *certs.Authority, after time.Duration) certs.Files {
	t.Helper()
	id, err := identity.New(cluster, identity.Service, "early")
	if err != nil {
		t.Fatal(err)
	}
	files, err := a.IssueFrom(id, nil, time.Now().Add(after), after+time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return files
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
