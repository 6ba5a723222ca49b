package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"berth.dev/pkg/process/port/porttest"
	"berth.dev/pkg/store"
)

// Nobody waits longer for a watch of an etcd that is out of reach than they
// said: a term that is over has to let go.
func TestWatchOfEtcdOutOfReach(t *testing.T) {
	s, err := store.Dial(store.DialConfig{Endpoints: []string{porttest.Hold(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := s.Watch("p/", 1)
	defer w.Close()
	if _, told, err := w.TryNext(); told || err != nil {
		t.Errorf("told %v, %v", told, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("next: %v", err)
	}
}
