package store

import (
	"context"
	"errors"
	"time"
)

// LeaveOut treats an etcd member as unresponsive.
func (e *Etcd) LeaveOut(endpoint string) {
	s := e.members
	s.mu.Lock()
	defer s.suspect()
	defer s.mu.Unlock()
	for s.active { // while the members are being probed
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	probe := s.probe
	s.probe = func(ctx context.Context, member string) error {
		if member == endpoint {
			return errors.New("the member does not answer")
		}
		return probe(ctx, member)
	}
}

// Suspect has the effect of a call that times out. If no member is fast, no member is
// excluded.
func (e *Etcd) Suspect() { e.members.suspect() }
