package loop_test

import (
	"fmt"
	"slices"
	"testing"

	"berth.dev/pkg/model"
)

// The receiver of job events gets the events once they are durable, in order and with the
// request that caused them. It never gets events that were abandoned.
func TestDurableEventsAreReported(t *testing.T) {
	r := newRig(t)
	var received []string
	r.driver.Durable = func(token uint64, revision int64, events []model.JobEvent) {
		if revision != r.fake.Revision() {
			t.Errorf("got revision %d, the store is at %d", revision, r.fake.Revision())
		}
		received = append(received, fmt.Sprintf("%d events of %d", len(events), token))
	}
	if _, err := r.round(put{record: executor("a"), events: 2}, put{record: executor("b"), events: 1},
		put{record: executor("c")}); err != nil {
		t.Fatal(err)
	}
	if want := []string{"2 events of 1", "1 events of 2"}; !slices.Equal(received, want) {
		t.Errorf("got %q, want %q", received, want)
	}

	received = nil
	r.shut("g")
	if _, err := r.round(put{record: executor("d"), gate: "g", events: 1}); err != nil {
		t.Fatal(err)
	}
	if received != nil {
		t.Errorf("got undone events: %q", received)
	}
}
