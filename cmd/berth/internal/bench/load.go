package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// operation is one thing that a caller does; i counts those of all callers.
type operation func(ctx context.Context, caller, i int) error

// load is what callers did.
type load struct {
	// Took are the durations of the operations, milliseconds, in no order.
	Took    []float64
	Seconds float64
}

// Rate is how many operations a second were done.
func (l load) Rate() float64 { return float64(len(l.Took)) / l.Seconds }

// bounds end a load: no operation is begun when the time is over or so many
// were begun. Zero bounds nothing.
type bounds struct {
	time time.Duration
	most int
}

// callers runs n callers, each of which begins an operation when its last one
// is done. The first error ends all of them.
func callers(ctx context.Context, n int, until bounds, do operation) (load, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var (
		next    atomic.Int64
		working sync.WaitGroup
		took    = make([][]float64, n)
		began   = time.Now()
	)
	for caller := range n {
		working.Go(func() {
			for until.time == 0 || time.Since(began) < until.time {
				i := int(next.Add(1)) - 1
				if until.most > 0 && i >= until.most || ctx.Err() != nil {
					return
				}
				start := time.Now()
				if err := do(ctx, caller, i); err != nil {
					fail(err)
					return
				}
				took[caller] = append(took[caller], millis(time.Since(start)))
			}
		})
	}
	working.Wait()
	l := load{Seconds: time.Since(began).Seconds()}
	for _, list := range took {
		l.Took = append(l.Took, list...)
	}
	return l, context.Cause(ctx)
}

// paced begins n operations, one each interval, whether or not those before are
// done, and gives each the time at which it was due: what waits because the
// system is behind has waited from then.
func paced(ctx context.Context, n int, interval time.Duration, do func(ctx context.Context, i int, due time.Time) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var working sync.WaitGroup
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range n {
		due := began.Add(time.Duration(i) * interval)
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-ctx.Done():
			working.Wait()
			return context.Cause(ctx)
		}
		working.Go(func() {
			if err := do(ctx, i, due); err != nil {
				fail(err)
			}
		})
	}
	working.Wait()
	return context.Cause(ctx)
}
