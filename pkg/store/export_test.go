package store

import (
	"context"
	"errors"
	"time"
)

// LeaveOut has a member of etcd be taken for silent.
func (e *Etcd) LeaveOut(endpoint string) {
	s := e.steer
	s.mu.Lock()
	defer s.suspect()
	defer s.mu.Unlock()
	for s.active { // a look is under way
		s.mu.Unlock()
		time.Sleep(time.Millisecond)
		s.mu.Lock()
	}
	probe := s.probe
	s.probe = func(ctx context.Context, member string) error {
		if member == endpoint {
			return errors.New("it does not answer")
		}
		return probe(ctx, member)
	}
}

// Suspect is what a call that runs into its deadline does. A look at the members leaves
// nobody out where none of them is fast.
func (e *Etcd) Suspect() { e.steer.suspect() }
