package policy

import (
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// claimFor is how long a claim lasts by default: long enough to remove the hosts.
const claimFor = time.Hour

// Claim is the request to pick at most Max idle executors of a SKU and to disable them in
// one effect, so that nothing is allocated on them in between. Max is from 1 to
// MaxSelected, which is 1000. The reply's Value is a [Claimed].
//
// An executor is idle if it may be given work and has no worker. The oldest generation
// comes first, and within a generation the greatest ID. This is the reverse of
// [match.Compare]: a claim takes the executors that would have been used last. A claim
// looks neither at pending demand nor at the bounds and the cooldown of the scale rule:
// its caller chooses Max by the usage. While the scale rule holds scaling, a new claim is
// refused. A claim from before the hold stays in force.
//
// A claim ends at ExpireAt, or earlier if Enable undoes it. A claim that finds no idle
// executor ends at once.
//
// While a claim has not ended, a repeat returns the executors that it still disables.
// After that a repeat returns none, because these executors may have been given work
// since.
type Claim struct {
	RequestID string
	SKU       string
	Max       int
	// ExpireAt is when executors that were not removed may be given work again; zero means
	// one hour from now.
	ExpireAt time.Time
}

// Claimed is the reply to Claim.
type Claimed struct {
	RequestID string
	Executors []string
	// SKU is the name of the SKU as lists spell it.
	SKU   string
	Since time.Time
}

// Claim decides a claim. rule is the scale rule of the SKU; it may be nil. unknown is the error of a
// new claim if the SKU is not known. pickIdle
// returns the IDs of at most limit idle executors of a SKU, in the order in which claims
// take them.
func (r *Requests) Claim(now time.Time, req Claim, rule *model.ScaleRule, unknown error,
	pickIdle func(sku string, limit int) []string) (Claimed, error) {
	var bad model.Violations
	bad.Name("requestId", req.RequestID, model.MaxName)
	bad.Name("sku", req.SKU, model.MaxName)
	if req.Max < 1 {
		bad.Add(fault.ReasonInvalid, "max", "must be at least 1, got %d", req.Max)
	}
	if req.Max > MaxSelected {
		bad.Add(fault.ReasonTooLarge, "max", "must be at most %d, got %d", MaxSelected, req.Max)
	}
	if err := bad.Err(); err != nil {
		return Claimed{}, err
	}
	d := &model.Disable{
		ID: req.RequestID, Reason: string(fault.ReasonClaimed), ExpireAt: req.ExpireAt, CreatedAt: now, Claim: true,
		Call: fingerprint("claim", constraint.Fold(req.SKU), req.Max, req.ExpireAt),
	}
	switch known, err := r.repeated(d); {
	case err != nil:
		return Claimed{}, err
	case known != nil && known.InForce():
		return Claimed{RequestID: known.ID, Executors: known.IDs, Since: known.CreatedAt}, nil
	case known != nil:
		return Claimed{RequestID: known.ID, Since: known.CreatedAt}, nil
	}
	if d.ExpireAt.IsZero() {
		d.ExpireAt = now.Add(claimFor)
	}
	if err := inFuture(d.ExpireAt, now); err != nil {
		return Claimed{}, err
	}
	if unknown != nil {
		return Claimed{}, unknown
	}
	if rule.Held(now) {
		err := fault.BadField(fault.ReasonScalingHeld, "sku", "scaling is held until %s: claim after the hold has ended",
			rule.HoldUntil.Add(time.Second-1).UTC().Format(time.RFC3339)) // rounded up, as in the usage
		err.Kind = fault.Precondition
		return Claimed{}, err
	}
	d.IDs = pickIdle(req.SKU, req.Max)
	if err := r.reserve("max", len(d.IDs), MaxNames-ReservedNames); err != nil {
		return Claimed{}, err
	}
	if len(d.IDs) == 0 {
		// The record stays, so that a late repeat does not pick executors that nobody would
		// remove.
		d.EndedAt = now
	}
	r.start(d)
	return Claimed{RequestID: d.ID, Executors: d.IDs, Since: d.CreatedAt}, nil
}
