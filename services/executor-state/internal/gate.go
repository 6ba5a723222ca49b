package internal

import (
	"context"

	"berth.dev/api/fault"
)

// gateSize is how many calls of one sort may be with the loop at once: enough
// for the largest round, and a small part of the loop's inbox.
const gateSize = 1024

// newcomersAtOnce is how many executors a replica makes present at once: few
// enough that each is done in time, enough for a group commit.
const newcomersAtOnce = 256

// gate bounds how many calls of one sort are handled at once. The others wait, in
// turn and until their deadline. The calls of agents, who may all come at once, do
// not fill the inbox of the loop this way: client calls and cycles find room.
type gate chan struct{}

func newGate(size int) gate { return make(gate, size) }

// pass calls do when it is its turn. An error of the gate's own says that do was
// not called.
func (g gate) pass(ctx context.Context, do func() error) error {
	select {
	case g <- struct{}{}:
	case <-ctx.Done():
		return fault.New(fault.Exhausted, fault.ReasonOverloaded, "other calls took all of the time given: at most %d are handled at once", cap(g)).Because(ctx.Err())
	}
	defer func() { <-g }()
	return do()
}
