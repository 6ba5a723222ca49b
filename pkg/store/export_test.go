package store

import (
	"context"
	"errors"
	"time"
)

// LeaveOut makes an etcd member count as unresponsive.
func (e *Etcd) LeaveOut(endpoint string) {
	s := e.members
	s.mu.Lock()
	defer s.suspect()
	defer s.mu.Unlock()
	for s.active { // the members are being probed
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

// Suspect does what a call does that times out. If no member is fast, none is excluded.
func (e *Etcd) Suspect() { e.members.suspect() }
