package bench

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"berth.dev/pkg/store"
)

// operation is one operation of a caller; i counts the operations of all callers.
type operation func(ctx context.Context, caller, i int) error

// load is the result of the function callers.
type load struct {
	// Took has the durations of all operations in milliseconds. The durations of each caller
	// are in the order of its operations.
	Took    []float64
	Seconds float64
}

// Rate returns the number of operations per second.
func (l load) Rate() float64 { return float64(len(l.Took)) / l.Seconds }

// bounds limits a load: no operation begins after the time has elapsed, or after most
// operations have begun. A zero value means no limit.
type bounds struct {
	time time.Duration
	most int
}

// callers runs n callers. Each caller begins an operation when its previous operation has
// returned. The first error ends all callers.
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

// paced begins n operations, one per interval, even if earlier operations have not returned.
// Each operation gets the time at which it was due. Measure its duration from that time, so
// that the duration includes a late start on a slow machine.
func paced(ctx context.Context, n int, interval time.Duration,
	do func(ctx context.Context, i int, due time.Time) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var working sync.WaitGroup
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(i) * interval)
		if store.Sleep(ctx, time.Until(due)) != nil {
			break
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

// load measures a phase of calls.
func (w *World) load(ctx context.Context, phase string, n int, until bounds, do operation) (l load, err error) {
	_, err = w.Measure(ctx, phase, func() (int, error) {
		var err error
		l, err = callers(ctx, n, until, do)
		return len(l.Took), err
	})
	return l, err
}

// paced measures a phase of n operations, one per interval. It returns the duration of each
// operation in milliseconds: from the time at which the operation was due until the time
// that do returns.
func (w *World) paced(ctx context.Context, phase string, n int, interval time.Duration,
	do func(ctx context.Context, i int) (time.Time, error)) ([]float64, error) {
	took := make([]float64, n)
	_, err := w.Measure(ctx, phase, func() (int, error) {
		return n, paced(ctx, n, interval, func(ctx context.Context, i int, due time.Time) error {
			done, err := do(ctx, i)
			took[i] = millis(done.Sub(due))
			return err
		})
	})
	return took, err
}

// series is a steady load that is repeated.
type series struct {
	// world is the world of the series; default the world whose repeat runs the series.
	world   *World
	name    string
	callers int
	// most limits the number of operations of one repeat. If it is 0, only the window limits
	// a repeat.
	most int
	// against is the name of the series that is the baseline.
	against string
	// units is the number of units of work of one operation; default 1.
	units int
	// target is the target of the rate.
	target *Target
	do     operation
}

// repeat runs the series in turns, so that other load on the machine affects all series. It
// adds two figures for each series: the rate, with one sample per repeat, and the duration
// of an operation.
func (w *World) repeat(ctx context.Context, all ...series) error {
	rates, took := make([][]float64, len(all)), make([][]float64, len(all))
	for range w.Repeats {
		for i, s := range all {
			l, err := cmp.Or(s.world, w).load(ctx, s.name, s.callers, bounds{time: w.Window, most: s.most}, s.do)
			if err != nil {
				return err
			}
			rates[i] = append(rates[i], l.Rate()*float64(max(1, s.units)))
			took[i] = append(took[i], l.Took...)
		}
	}
	for i, s := range all {
		w.Add(Figure{Name: s.name, Unit: "/s", Against: s.against, Samples: rates[i], Target: s.target})
	}
	for i, s := range all {
		w.Add(Figure{Name: s.name, Unit: "ms", Against: s.against, Samples: took[i]})
	}
	return nil
}
