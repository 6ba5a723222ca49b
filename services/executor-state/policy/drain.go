package policy

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Drain is the request to disable one executor and to evict its workers, until the
// request expires or is undone. One effect writes the request and a mark on the
// executor's record. Because of the mark the assigner evicts the workers. The end of the
// last drain removes the mark. An executor that registers again keeps the mark.
type Drain struct {
	ID, RequestID, Reason string
	// ExpireAt is when the drain expires; zero means never.
	ExpireAt time.Time
	// Grace shortens the time that the workers have to end, also if they are being stopped already; nil
	// does not.
	Grace *time.Duration
}

// Drain decides a request to drain, and returns the executor.
func (r *Requests) Drain(now time.Time, req Drain) (*Executor, error) {
	var bad model.Violations
	bad.Name("id", req.ID, model.MaxID)
	bad.Name("requestId", req.RequestID, model.MaxName)
	bad.AtMost("reason", len(req.Reason), MaxReason, "bytes")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	e := r.owner.Registered(req.ID)
	if e == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", req.ID)
	}
	call := []any{"drain", req.ID, req.Reason, req.ExpireAt}
	if req.Grace != nil {
		call = append(call, *req.Grace)
	}
	d := &model.Disable{ID: req.RequestID, IDs: []string{req.ID}, Reason: req.Reason, ExpireAt: req.ExpireAt,
		CreatedAt: now, Drain: true, Grace: req.Grace, Call: fingerprint(call...)}
	if known, err := r.repeated(d); known != nil || err != nil {
		return e, err
	}
	if err := inFuture(req.ExpireAt, now); err != nil {
		return nil, err
	}
	if err := r.reserve("id", 1, MaxNames); err != nil {
		return nil, err
	}
	r.start(d, withDrain(e, true, shorter(e.Record.DrainGrace, req.Grace))...)
	return e, nil
}

// withDrain returns the record of an executor with what its drains require, if that differs from what
// it has.
func withDrain(e *Executor, draining bool, grace *time.Duration) []model.Record {
	same := grace == nil && e.Record.DrainGrace == nil || grace != nil && e.Record.DrainGrace != nil &&
		*grace == *e.Record.DrainGrace
	if e.Record.Draining == draining && same {
		return nil
	}
	record := *e.Record
	record.Draining, record.DrainGrace = draining, grace
	return []model.Record{&record}
}

// shorter returns the shorter one of two times; nil stands for none.
func shorter(a, b *time.Duration) *time.Duration {
	if a == nil || b != nil && *b < *a {
		return b
	}
	return a
}
