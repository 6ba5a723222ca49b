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

// These limits bound the work that all agents of a gateway together cause in the control
// plane. The cost of a request is its size in bytes, and workerCost for each worker that it
// lists, because even a worker of two bytes takes as long as any other. Repeated heartbeats
// without a report cost nothing.
const (
	workerCost = 100
	leastCost  = 512
	// Requests that cost more than largeCost have a separate limit, so that small requests
	// do not wait for large requests.
	largeCost = 16 << 10
	// costRate is the maximum cost per second of all small requests, and separately of all
	// large requests: about 60,000 reports of one worker each, or 300,000 workers. costBurst
	// is higher, because many agents reconnect at once when another gateway exits.
	costRate  = 32 << 20
	costBurst = 64 << 20
	// longestPause is how long a large request may wait. If a request is rejected, the agent
	// repeats the report on its next stream.
	longestPause = 5 * time.Second
)

// pacer limits the rate of requests. At most one request of each stream waits, so all streams
// get the same share.
type pacer struct{ small, large *rate.Limiter }

func newPacer() pacer {
	return pacer{rate.NewLimiter(costRate, costBurst), rate.NewLimiter(costRate, costBurst)}
}

// wait waits until the request may be sent. It rejects a request that lists too many workers
// or would wait for longer than longestPause.
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

// listed returns the number of workers that a HeartbeatRequest lists, without decoding them.
// It stops at the first byte that is not part of a valid field.
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

// each calls fn for each field of a message, and reports whether all fields are valid. The
// value of a field that is neither a message nor text is empty.
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
