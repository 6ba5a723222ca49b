package loop

import (
	"context"

	"berth.dev/pkg/model"
)

// Owner owns a core on behalf of a service's gRPC handlers. It is a Loop, or a node of the
// simulator, which has its own time and order of rounds.
type Owner[C model.Core] interface {
	// Do gives the core a request and waits for its reply.
	Do(ctx context.Context, request any) (any, error)
	// Read calls fn with the core of the serving leader.
	Read(ctx context.Context, confirm bool, fn func(C)) error
	// Status describes the replica.
	Status() Status
}

var _ Owner[model.Core] = (*Loop[model.Core])(nil)
