package relay

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protowire"

	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// The bounds of what all agents of a gateway have the control plane look at. A request
// costs its bytes and some for each worker that it lists, since a worker of two bytes
// takes as long as any other. Beats cost nothing.
const (
	workerCost = 100
	leastCost  = 512
	// largeCost is the cost above which requests have a pace of their own, so that the
	// small ones do not wait for them.
	largeCost = 16 << 10
	// costRate is a second's cost of the small requests, and of the large ones:
	// about 60,000 reports of one worker, or 300,000 workers. costBurst is for the
	// agents that come all at once from a gateway that is gone.
	costRate  = 32 << 20
	costBurst = 64 << 20
	// longestPause is how long a large request may wait. An agent whose request is
	// refused brings it again on its next stream.
	longestPause = 5 * time.Second
)

// pacer bounds the rate of requests. Each stream has at most one that waits, so that
// all streams get the same share.
type pacer struct{ small, large *rate.Limiter }

func newPacer() pacer {
	return pacer{rate.NewLimiter(costRate, costBurst), rate.NewLimiter(costRate, costBurst)}
}

// wait waits for the turn of a request. It refuses one that lists too many workers.
func (p pacer) wait(ctx context.Context, request []byte) error {
	workers := listed(request)
	if workers > wire.MaxReportedWorkers {
		return fault.BadField(fault.ReasonTooLarge, "report.workers", "must be at most %d, got more", wire.MaxReportedWorkers)
	}
	cost := max(leastCost, len(request)+workers*workerCost)
	if cost <= largeCost {
		return p.small.WaitN(ctx, cost)
	}
	turn := p.large.ReserveN(time.Now(), cost)
	delay := turn.Delay()
	if !turn.OK() || delay > longestPause {
		turn.Cancel()
		return fault.New(fault.Unavailable, fault.ReasonOverloaded, "too many large reports are in progress; try again later")
	}
	if delay == 0 {
		return nil
	}
	pause := time.NewTimer(delay)
	defer pause.Stop()
	select {
	case <-pause.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// The fields of a HeartbeatRequest and of its report.
const (
	reportField  = 3
	workersField = 5
)

// listed counts the workers that a HeartbeatRequest lists, without decoding them. It
// stops at the first byte that is no field.
func listed(request []byte) (workers int) {
	each(request, func(field protowire.Number, value []byte) {
		if field == reportField {
			each(value, func(field protowire.Number, _ []byte) {
				if field == workersField {
					workers++
				}
			})
		}
	})
	return workers
}

// each calls fn for the fields of a message; a value is that of a message or text, and
// empty for any other.
func each(message []byte, fn func(field protowire.Number, value []byte)) {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return
		}
		fn(field, value)
		message = message[n:]
	}
}
