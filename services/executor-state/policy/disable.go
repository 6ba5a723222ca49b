package policy

import (
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/match"
)

// These bound the requests to disable, which are all kept in memory.
const (
	MaxSelected = 1000
	// MaxNames bounds the registered executors that requests name. An executor counts once
	// for each request that names it. Requests to disable and claims leave ReservedNames of
	// these to drains, so that an operator can always drain. Enable adds no name and is
	// never rejected because of this bound.
	MaxNames      = 200_000
	ReservedNames = MaxNames / 10
	// MaxByAttributes bounds the requests that select by attributes.
	MaxByAttributes = 500
	// MaxUnknown bounds the named IDs without a registered executor, which also count once
	// for each request. It is a separate bound because a caller can make up any number of
	// IDs.
	MaxUnknown = 10_000
)

// Selector selects executors by IDs, or by attributes that must all be equal without
// regard to case. Exactly one of the two is set.
type Selector struct {
	IDs        []string
	Attributes map[string]string
}

// Disable is the request to take executors out of allocation until the request expires or
// is undone. It includes executors that register later. The workers of these executors
// stay. A repeat with the same ID acts once. The reply's Value is a [Disabled].
type Disable struct {
	RequestID string
	Selector  Selector
	// ExpireAt is when the request expires; zero means never.
	ExpireAt time.Time
	Reason   string
}

// Disabled is the reply to Disable.
type Disabled struct {
	RequestID string
	// Executors is how many executors the request applies to now.
	Executors int
	// Unknown lists the named IDs without a registered executor, in order.
	Unknown []string
}

// Enable is the request to undo requests to disable. It undoes the request with
// DisableRequestID, or every request that names an ID of the selector or has the
// selector's attributes. If an undone request also names other executors, it stays for
// these. A repeat with the same ID acts once. The reply's Value is an [Enabled].
type Enable struct {
	RequestID        string
	DisableRequestID string
	Selector         Selector
	// ClaimOnly is true for a caller that may undo only claims for scale-down, by their IDs.
	ClaimOnly bool
}

// Enabled is the reply to Enable.
type Enabled struct {
	RequestID string
	// Undone is how many requests were undone, in whole or in part.
	Undone int
}

// Disable decides a request to disable. It excludes the executors through start.
func (r *Requests) Disable(now time.Time, req Disable) (Disabled, error) {
	d, err := r.admit(now, req)
	if err != nil {
		return Disabled{}, err
	}
	if known := r.byID[d.ID]; known != nil {
		d = known
	} else {
		r.start(d)
	}
	answer := Disabled{RequestID: d.ID, Executors: r.count(d)}
	if d.InForce() {
		answer.Unknown = r.unregistered(d.IDs)
	}
	return answer, nil
}

// admit returns the record of a request, or an error that says why the request is
// rejected. A repeat is never rejected.
func (r *Requests) admit(now time.Time, req Disable) (*model.Disable, error) {
	var bad model.Violations
	bad.Name("requestId", req.RequestID, model.MaxName)
	checkSelector(&bad, req.Selector)
	bad.AtMost("reason", len(req.Reason), MaxReason, "bytes")
	if err := bad.Err(); err != nil {
		return nil, err
	}
	d := &model.Disable{
		ID: req.RequestID, IDs: idSet(req.Selector.IDs), Attributes: req.Selector.Attributes,
		Reason: req.Reason, ExpireAt: req.ExpireAt, CreatedAt: now,
		Call: fingerprint("disable", req.Selector, req.Reason, req.ExpireAt),
	}
	if known, err := r.repeated(d); known != nil || err != nil {
		return d, err
	}
	if err := inFuture(req.ExpireAt, now); err != nil {
		return nil, err
	}
	unknown := len(r.unregistered(d.IDs))
	if err := r.reserve("selector.ids", len(d.IDs)-unknown, MaxNames-ReservedNames); err != nil {
		return nil, err
	}
	if r.unknown+unknown > MaxUnknown {
		return nil, exhausted("selector.ids", "%d IDs are not registered, and requests name %d such IDs of at most %d",
			unknown, r.unknown, MaxUnknown)
	}
	if len(d.Attributes) > 0 && len(r.byAttributes) >= MaxByAttributes {
		return nil, exhausted("selector.attributes", "%d requests select by attributes, which is the maximum",
			len(r.byAttributes))
	}
	return d, nil
}

// start puts a request into force. It emits an effect with the record of the request and
// more records, and changes nothing itself. Owner.Decide applies the effect and calls
// Requests.Set, and from there apply (requests.go) closes classes and enters the request
// at the named executors. If none of the executors has a worker, start marks the request
// as reported, because there are no events to write.
func (r *Requests) start(d *model.Disable, more ...model.Record) {
	busy := slices.ContainsFunc(d.IDs, func(id string) bool {
		e := r.owner.Registered(id)
		return e != nil && e.Leased.Workers > 0
	})
	if len(d.Attributes) > 0 {
		for class := range r.index.Classes(match.AttributesOf(d.Attributes)) {
			if slices.ContainsFunc(class.Executors(), func(e *match.Executor) bool { return e.Leased.Workers > 0 }) {
				busy = true
				break // a fleet may have as many classes as executors
			}
		}
	}
	d.ReportedAll = !busy
	r.owner.Decide(model.Effect{Puts: append([]model.Record{d}, more...)})
}

// Enable decides a request to undo others. Each undone request is an effect of its own,
// because all of them may not fit into one transaction. The record of the call comes
// last.
func (r *Requests) Enable(now time.Time, req Enable) (Enabled, error) {
	var bad model.Violations
	bad.Name("requestId", req.RequestID, model.MaxName)
	switch selected := len(req.Selector.IDs)+len(req.Selector.Attributes) > 0; {
	case req.DisableRequestID == "" && !selected:
		bad.Add(fault.ReasonRequired, "selector", "is required unless disableRequestId is set: ids or attributes")
	case req.DisableRequestID == "":
		checkSelector(&bad, req.Selector)
	default:
		bad.Name("disableRequestId", req.DisableRequestID, model.MaxName)
		if selected {
			bad.Add(fault.ReasonInvalid, "selector", "must not be set together with disableRequestId")
		}
	}
	if err := bad.Err(); err != nil {
		return Enabled{}, err
	}
	if d := r.byID[req.DisableRequestID]; req.ClaimOnly && (req.DisableRequestID == "" || d != nil && !d.Claim) {
		return Enabled{}, fault.New(fault.Denied, fault.ReasonPermissionDenied,
			"disableRequestId: must be the request ID of a claim for scale-down; undoing other requests requires the role operator")
	}
	call := &model.Disable{
		ID: req.RequestID, Enable: true, CreatedAt: now, EndedAt: now,
		Call: fingerprint("enable", req.DisableRequestID, req.Selector),
	}
	switch known, err := r.repeated(call); {
	case err != nil:
		return Enabled{}, err
	case known != nil:
		return Enabled{known.ID, int(known.Undone)}, nil
	}
	for _, id := range r.inForce(req.DisableRequestID, req.Selector) {
		d := r.byID[id]
		if len(req.Selector.IDs) > 0 {
			r.release(now, d, req.Selector.IDs)
		} else {
			r.release(now, d, d.IDs)
		}
		call.Undone++
	}
	r.owner.Decide(model.Effect{Puts: []model.Record{call}})
	return Enabled{call.ID, int(call.Undone)}, nil
}

// repeated returns the record of an earlier call with the same ID; nil if there is none.
// It rejects a different call with that ID.
func (r *Requests) repeated(call *model.Disable) (*model.Disable, error) {
	known := r.byID[call.ID]
	if known != nil && known.Call != call.Call {
		return nil, fault.New(fault.Conflict, fault.ReasonDuplicate, "request ID %q was used for another call", call.ID)
	}
	return known, nil
}

// fingerprint distinguishes calls by their parameters. It is stored, so its input must
// not change: otherwise a repeat would be rejected as a different call.
func fingerprint(parts ...any) uint64 {
	sum := fnv.New64a()
	for _, part := range parts {
		switch p := part.(type) {
		case Selector:
			part = fmt.Sprintf("%q %s", idSet(p.IDs), match.AttributesKey(p.Attributes))
		case time.Time:
			part = p.UTC().Format(time.RFC3339Nano)
		}
		fmt.Fprintf(sum, "%#v\n", part)
	}
	return sum.Sum64()
}

// idSet returns the IDs in order, without duplicates.
func idSet(ids []string) []string { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// inFuture rejects a request that would already have expired.
func inFuture(expire, now time.Time) error {
	if !expire.IsZero() && !expire.After(now) {
		return fault.BadField(fault.ReasonInvalid, "expireTime", "must be in the future")
	}
	return nil
}

// reserve rejects a request if all requests together would name more than most registered
// executors.
func (r *Requests) reserve(field string, ids, most int) error {
	if n := r.names - r.unknown; ids > 0 && n+ids > most {
		return exhausted(field, "requests name %d executors of at most %d", n, most)
	}
	return nil
}

// exhausted returns the error for a request that exceeds a bound because of the requests
// in force.
func exhausted(field, format string, args ...any) error {
	f := fault.BadField(fault.ReasonTooLarge, field, format, args...)
	f.Kind = fault.Exhausted
	f.Message += "; enable some executors, or wait until requests expire"
	return f
}
