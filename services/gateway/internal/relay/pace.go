package relay

import (
	"context"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protowire"

	"berth.dev/api/fault"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// These limits bound the work that all agents of a gateway cause in the control plane. A
// request costs its bytes, and workerCost for each worker that it lists, because a worker
// of two bytes takes as long as any other. Heartbeats without news cost nothing.
const (
	workerCost = 100
	leastCost  = 512
	// largeCost is the cost from which on requests have a rate of their own, so that small
	// requests do not wait for large ones.
	largeCost = 16 << 10
	// costRate is the cost per second of all small requests, and of all large ones: about
	// 60,000 reports of one worker, or 300,000 workers. costBurst allows for agents that
	// reconnect at once after another gateway has exited.
	costRate  = 32 << 20
	costBurst = 64 << 20
	// longestPause is how long a large request may wait. An agent whose request is rejected
	// repeats it on its next stream.
	longestPause = 5 * time.Second
)

// pacer bounds the rate of requests. Each stream has at most one request that waits, so all
// streams get the same share.
type pacer struct{ small, large *rate.Limiter }

func newPacer() pacer {
	return pacer{rate.NewLimiter(costRate, costBurst), rate.NewLimiter(costRate, costBurst)}
}

// wait waits until a request may be sent. It rejects a request that lists too many workers.
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
	if !turn.OK() || turn.Delay() > longestPause {
		turn.Cancel()
		return fault.New(fault.Unavailable, fault.ReasonOverloaded, "too many large reports are in progress; try again later")
	}
	return store.Sleep(ctx, turn.Delay())
}

// The fields of a HeartbeatRequest and of its report.
const (
	reportField  = 3
	workersField = 5
)

// listed counts the workers that a HeartbeatRequest lists, without decoding them. It stops
// at the first byte that is not part of a field.
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

// bare reports whether a HeartbeatRequest is valid and has no report.
func bare(request []byte) bool {
	reports := 0
	valid := each(request, func(field protowire.Number, _ []byte) {
		if field == reportField {
			reports++
		}
	})
	return valid && reports == 0
}

// each calls fn for the fields of a message, and reports whether all are valid. The value of
// a field that is neither a message nor text is empty.
func each(message []byte, fn func(field protowire.Number, value []byte)) bool {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return false
		}
		message = message[n:]
		var value []byte
		if kind == protowire.BytesType {
			value, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return false
		}
		fn(field, value)
		message = message[n:]
	}
	return true
}
