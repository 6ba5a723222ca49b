package agent

import (
	"context"
	mathrand "math/rand/v2"
	"time"
)

// pause is a wait that doubles from first to last, each with jitter: between
// half of it and all of it.
type pause struct {
	first, last, next time.Duration
}

// wait waits the next pause, or until the context ends.
func (p *pause) wait(ctx context.Context) {
	timer := time.NewTimer(p.advance())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (p *pause) advance() time.Duration {
	full := max(p.next, p.first)
	p.next = min(2*full, p.last)
	return full/2 + mathrand.N(full/2+1) //nolint:gosec // a pause is not a secret
}

func (p *pause) reset() { p.next = 0 }
