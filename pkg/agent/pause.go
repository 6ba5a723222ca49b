package agent

import (
	"context"
	mathrand "math/rand/v2"
	"time"
)

// pause is a wait that doubles each time, from first up to last. Random jitter shortens
// each wait by up to half.
type pause struct {
	first, last, next time.Duration
}

// wait waits for the next, longer pause, or until the context ends.
func (p *pause) wait(ctx context.Context) { sleep(ctx, p.advance(), nil) }

func (p *pause) advance() time.Duration {
	full := max(p.next, p.first)
	p.next = min(2*full, p.last)
	return full/2 + mathrand.N(full/2+1) //nolint:gosec // a pause is not a secret
}

func (p *pause) reset() { p.next = 0 }

// sleep waits until d has passed, wake delivers an element, or the context ends.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
}
