package inventory

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// Drain is the request to disable one executor and to have its workers told to
// go; it stands until it expires or is undone. The assigner evicts by the mark on
// the executor's record, which one effect sets with the request, and another takes
// away with the last such request; an executor that registers again keeps it. The
// reply's Value is the [ExecutorView].
type Drain struct {
	ID, RequestID, Reason string
	// ExpireAt is zero for a drain that stands until it is undone.
	ExpireAt time.Time
}

func (c *Core) drain(r Drain) (ExecutorView, error) {
	var bad violations
	bad.name("id", r.ID, maxID)
	bad.name("requestId", r.RequestID, maxName)
	bad.reasonText(r.Reason)
	if err := bad.err(); err != nil {
		return ExecutorView{}, err
	}
	h := c.hosts[r.ID]
	if h == nil {
		return ExecutorView{}, fault.New(fault.NotFound, fault.ReasonNotFound, "there is no executor %s", r.ID)
	}
	d := &model.Disable{ID: r.RequestID, IDs: []string{r.ID}, Reason: r.Reason, ExpireAt: r.ExpireAt, CreatedAt: c.now, Drain: true}
	d.Call = r.call()
	switch known, err := c.repeated(d); {
	case err != nil:
		return ExecutorView{}, err
	case known != nil:
		return c.view(h), nil
	}
	if err := inFuture(r.ExpireAt, c.now); err != nil {
		return ExecutorView{}, err
	}
	if err := c.roomFor("id", 1, maxNames); err != nil {
		return ExecutorView{}, err
	}
	var marked []model.Record
	if !h.executor.Draining {
		executor := *h.executor
		executor.Draining = true
		marked = append(marked, &executor)
	}
	c.disableNow(d, marked...)
	return c.view(h), nil
}

// call tells the call from others. What does not expire is told as it was when no
// drain did.
func (r Drain) call() uint64 {
	if r.ExpireAt.IsZero() {
		return fingerprint("drain", r.ID, r.Reason)
	}
	return fingerprint("drain", r.ID, r.Reason, r.ExpireAt)
}
