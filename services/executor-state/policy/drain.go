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
}

// Drain decides a request to drain, and returns the executor.
func (r *Requests) Drain(now time.Time, req Drain) (*Executor, error) {
	var bad Violations
	bad.Name("id", req.ID, MaxID)
	bad.Name("requestId", req.RequestID, MaxName)
	bad.atMost("reason", len(req.Reason), MaxReason, "bytes")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	e := r.owner.Registered(req.ID)
	if e == nil {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", req.ID)
	}
	d := &model.Disable{ID: req.RequestID, IDs: []string{req.ID}, Reason: req.Reason, ExpireAt: req.ExpireAt,
		CreatedAt: now, Drain: true, Call: fingerprint("drain", req.ID, req.Reason, req.ExpireAt)}
	if known, err := r.repeated(d); known != nil || err != nil {
		return e, err
	}
	if err := inFuture(req.ExpireAt, now); err != nil {
		return nil, err
	}
	if err := r.reserve("id", 1, MaxNames); err != nil {
		return nil, err
	}
	var marked []model.Record
	if !e.Record.Draining {
		record := *e.Record
		record.Draining = true
		marked = append(marked, &record)
	}
	r.start(d, marked...)
	return e, nil
}
