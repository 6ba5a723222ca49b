package store

import (
	"context"
	"errors"
)

// LeaveOut has a member of etcd be taken for silent.
func (e *Etcd) LeaveOut(endpoint string) {
	probe := e.steer.probe
	e.steer.probe = func(ctx context.Context, member string) error {
		if member == endpoint {
			return errors.New("it does not answer")
		}
		return probe(ctx, member)
	}
	e.steer.suspect()
}
