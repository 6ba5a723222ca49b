package chaos

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/client"
	"berth.dev/pkg/store"
)

// reader follows the events of a job during all faults.
type reader struct {
	job string

	mu         sync.Mutex
	seen       []string // cursors, in the order of the stream
	violations []string
	moved      chan struct{} // closed and replaced at every event
}

func newReader(job string) *reader { return &reader{job: job, moved: make(chan struct{})} }

// run reads the stream until ctx ends. If the gateway answers that the events after a
// cursor are compacted, run starts again from the oldest event, as documented, and skips
// the events that it already has.
func (r *reader) run(ctx context.Context, c *client.Client) {
	for again := false; ctx.Err() == nil; again = true {
		for event, err := range c.Events(ctx, r.job, "") {
			switch f := fault.Of(err); {
			case err == nil:
				r.take(event.GetCursor(), again)
			case f.Reason == fault.ReasonEventsCompacted:
			default:
				r.addViolation("the stream of %s ended with %v", r.job, err)
				return
			}
		}
	}
}

// take records an event. In a stream that was started again, an event may repeat an
// earlier event. Otherwise it must come after the last event.
func (r *reader) take(cursor string, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.seen); n > 0 && compareCursors(cursor, r.seen[n-1]) <= 0 {
		if _, found := slices.BinarySearchFunc(r.seen, cursor, compareCursors); again && found {
			return
		}
		r.violations = append(r.violations, fmt.Sprintf("the stream of %s delivered %s after %s", r.job, cursor, r.seen[n-1]))
		return
	}
	r.seen = append(r.seen, cursor)
	close(r.moved)
	r.moved = make(chan struct{})
}

func (r *reader) addViolation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// check waits until the stream has reached the end of etcd's events, and returns how it
// differs from etcd.
func (r *reader) check(ctx context.Context, stored []string) []string {
	for {
		r.mu.Lock()
		behind, moved := len(stored) > 0 && (len(r.seen) == 0 ||
			compareCursors(r.seen[len(r.seen)-1], stored[len(stored)-1]) < 0),
			r.moved
		r.mu.Unlock()
		if !behind {
			break
		}
		select {
		case <-moved:
			continue
		case <-ctx.Done():
		}
		break
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	found := slices.Clone(r.violations)
	seen := map[string]bool{}
	for _, cursor := range r.seen {
		seen[cursor] = true
	}
	var missing []string
	for _, cursor := range stored {
		if !seen[cursor] {
			missing = append(missing, cursor)
		}
		delete(seen, cursor)
	}
	if len(missing) > 0 {
		found = append(found, fmt.Sprintf("the stream of %s missed %d of %d events, the first %s", r.job, len(missing),
			len(stored), missing[0]))
	}
	for cursor := range seen {
		// The stream continued while etcd was read.
		if len(stored) > 0 && compareCursors(cursor, stored[len(stored)-1]) < 0 {
			found = append(found, fmt.Sprintf("the stream of %s delivered %s, which is not in etcd", r.job, cursor))
		}
	}
	return found
}

// delivered returns the number of events of the stream.
func (r *reader) delivered() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.seen)
}

// events are the events of a job in etcd.
type events struct {
	cursors []string // in order
	// queued and requeued have the uids of the versions that events report as queued and
	// requeued.
	queued, requeued map[string]bool
	// leased has the times of grants, by the clocks of the leaders that granted the leases.
	leased []time.Time
	// restarted, expired and bound count the events of restarts and of reservations that expired
	// or were bound.
	restarted, expired, bound int
}

func storedEvents(ctx context.Context, s store.Store, job string) (events, error) {
	stored := events{queued: map[string]bool{}, requeued: map[string]bool{}}
	kvs, _, err := store.Range(ctx, s, space.JobEvents(job))
	if err != nil {
		return stored, err
	}
	for _, kv := range kvs {
		var event berthv1.Event
		if err := proto.Unmarshal(kv.Value, &event); err != nil {
			return stored, fmt.Errorf("undecodable event %s: %w", kv.Key, err)
		}
		stored.cursors = append(stored.cursors, fmt.Sprintf("%d-%s", kv.Mod, event.GetCursor()))
		switch event.GetKind() {
		case berthv1.Event_RESERVATION_QUEUED:
			stored.queued[event.GetUid()] = true
		case berthv1.Event_RESERVATION_REQUEUED:
			stored.requeued[event.GetUid()] = true
			if event.GetReason() == string(fault.ReasonRestarting) {
				stored.restarted++
			}
		case berthv1.Event_RESERVATION_EXPIRED:
			stored.expired++
		case berthv1.Event_RESERVATION_BOUND:
			stored.bound++
		case berthv1.Event_RESERVATION_LEASED:
			stored.leased = append(stored.leased, event.GetTime().AsTime())
		}
	}
	slices.SortFunc(stored.cursors, compareCursors)
	return stored, nil
}

func compareCursors(a, b string) int {
	parse := func(cursor string) (int64, int64) {
		revision, index, _ := strings.Cut(cursor, "-")
		r, _ := strconv.ParseInt(revision, 10, 64)
		i, _ := strconv.ParseInt(index, 10, 64)
		return r, i
	}
	ar, ai := parse(a)
	br, bi := parse(b)
	return cmp.Or(cmp.Compare(ar, br), cmp.Compare(ai, bi))
}
