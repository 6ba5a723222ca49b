package loop

import (
	"context"

	"berth.dev/pkg/model"
)

// Owner is who owns a core, as the face of a service sees it: Loop, or a
// simulated world that has its own idea of time and of turns.
type Owner[C model.Core] interface {
	// Do gives the core a request and waits for its reply.
	Do(ctx context.Context, request any) (any, error)
	// Read calls fn with the core of the serving leader.
	Read(ctx context.Context, confirm bool, fn func(C)) error
	// Status says where the replica stands.
	Status() Status
}

var _ Owner[model.Core] = (*Loop[model.Core])(nil)
