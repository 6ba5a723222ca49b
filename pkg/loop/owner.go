package loop

import (
	"context"
	"time"

	"berth.dev/pkg/model"
)

// Owner owns a core on behalf of a service's gRPC handlers. It is either a Loop or a node
// of the simulator, which controls time and the order of rounds itself.
type Owner[C model.Core] interface {
	// Do passes a request to the core and waits for the reply.
	Do(ctx context.Context, request any) (any, error)
	// Read calls fn with the core of the serving leader.
	Read(ctx context.Context, confirm bool, fn func(C)) error
	// Status describes the replica.
	Status() Status
	// Now returns the time on the clock of the core's steps.
	Now() time.Time
}

var _ Owner[model.Core] = (*Loop[model.Core])(nil)
