package inventory

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// claimFor is how long a claim holds unless told otherwise: time enough to
// remove the hosts.
const claimFor = time.Hour

// Claim is the request to pick idle executors of a SKU, at most Max of them,
// and to disable them in one step, so that nothing is allocated in between. The
// reply's Value is a [Claimed].
//
// Idle is what may be given work and holds no worker. The oldest generation
// goes first, and of one generation the greatest id: the reverse of the order
// in which the matcher prefers executors of equal fit, so that a claim takes
// those that would have been used last.
//
// A repeat answers the executors that the claim still holds: all of those it
// picked, less what was enabled since, and none once it has ended, for they may
// have been given work by then.
type Claim struct {
	RequestID string
	SKU       string
	Max       int
	// ExpireAt ends the claim of what was not removed by then; an hour from now
	// if zero.
	ExpireAt time.Time
}

// Claimed answers Claim.
type Claimed struct {
	RequestID string
	Executors []string
	// SKU is spelled as it is listed.
	SKU   string
	Since time.Time
}

func (c *Core) claim(r Claim) (Claimed, error) {
	if err := r.check(); err != nil {
		return Claimed{}, err
	}
	d := &model.Disable{ID: r.RequestID, Reason: string(fault.ReasonClaimed), ExpireAt: r.ExpireAt, CreatedAt: c.now, Claim: true}
	d.Call = fingerprint("claim", constraint.Fold(r.SKU), r.Max, r.ExpireAt)
	switch known, err := c.repeated(d); {
	case err != nil:
		return Claimed{}, err
	case known != nil && known.Holds():
		return Claimed{known.ID, known.IDs, c.usage.Spelled(r.SKU), known.CreatedAt}, nil
	case known != nil:
		return Claimed{RequestID: known.ID, SKU: c.usage.Spelled(r.SKU), Since: known.CreatedAt}, nil
	}
	if d.ExpireAt.IsZero() {
		d.ExpireAt = c.now.Add(claimFor)
	}
	if err := inFuture(d.ExpireAt, c.now); err != nil {
		return Claimed{}, err
	}
	d.IDs = c.pickIdle(r.SKU, r.Max)
	if err := c.roomFor("max", len(d.IDs), maxNames-reservedNames); err != nil {
		return Claimed{}, err
	}
	if len(d.IDs) == 0 {
		// It is remembered all the same: a late repeat must not pick anything
		// that nobody would remove.
		d.EndedAt = c.now
	}
	c.disableNow(d)
	return Claimed{d.ID, d.IDs, c.usage.Spelled(r.SKU), d.CreatedAt}, nil
}

func (r Claim) check() error {
	var bad violations
	bad.name("requestId", r.RequestID, maxName)
	bad.name("sku", r.SKU, maxName)
	switch {
	case r.Max < 1:
		bad.add(fault.ReasonInvalid, "max", "must be at least 1, is %d", r.Max)
	case r.Max > maxSelected:
		bad.add(fault.ReasonTooLarge, "max", "at most %d, is %d", maxSelected, r.Max)
	}
	return bad.err()
}

// pickIdle answers the ids of at most limit idle executors of a SKU, those
// first that would be used last.
func (c *Core) pickIdle(sku string, limit int) []string {
	ids := []string{}
	for _, h := range c.idleFirst(sku, limit, func(a, b *host) int { return match.Compare(&b.Executor, &a.Executor) }) {
		ids = append(ids, h.ID)
	}
	return ids
}
