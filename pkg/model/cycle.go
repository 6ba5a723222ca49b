package model

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
)

// Cycle is one scheduling cycle. The registry sends its candidates to executor-state, in
// the order in which they should be granted.
type Cycle struct {
	// Term is the term of the registry's leader. Number rises within a term.
	Term, Number int64
	// Cut is the revision that the registry had reached when it read the queues for this
	// cycle.
	Cut        int64
	Candidates []Candidate
}

// From returns the service that sends cycles, and its term.
func (c Cycle) From() (service string, term int64) { return ServiceRegistry, c.Term }

// Known returns the newest revision in the cycle. The store had reached this revision
// when the registry started the cycle.
func (c Cycle) Known() int64 {
	newest := c.Cut
	for i := range c.Candidates {
		newest = max(newest, c.Candidates[i].Mod, c.Candidates[i].Epoch)
	}
	return newest
}

// Candidate is one reservation in a cycle.
type Candidate struct {
	Key Key
	UID string
	// Epoch and Mod are the create and the mod revision of the record that the registry read
	// for this cycle.
	Epoch, Mod  int64
	Group       string
	Constraints constraint.Constraints
	Workers     WorkerSet
	Trace       Trace
	// Volume is the requested volume; nil for none.
	Volume *VolumeRequest
	// Chosen is the ID of the cell that a bind has chosen; empty for none.
	Chosen string
	// Hold is set if the reservation is held once it has its executors.
	Hold bool
	// Unchanged is set if the last cycle refused the candidate and the candidate has not
	// changed since. Then only UID, Mod, Group, NextAt and Splits are set.
	Unchanged bool
	// Splits is set if the registry splits the reservation when only some of its workers
	// fit. If so, all candidates after it are Later, because the part comes before them.
	Splits bool
	// NextAt is set if the group continues behind this candidate, which is its last one in
	// the cycle. The next reservation of the group comes before the candidates with this
	// index and all higher ones. So if this candidate is granted, those are Later. It is 0 if
	// no candidate comes after that reservation.
	NextAt int32
}

// Result is the decision of executor-state about a candidate. The numbers are equal to
// the numbers in the control API.
type Result uint8

const (
	// ResultUnset means that there is no decision.
	ResultUnset Result = iota
	// Granted means that executor-state has leased executors for all workers, and the lease
	// is durable.
	Granted
	// NoFit means that not all workers fit now. Nothing is leased.
	NoFit
	// Stale means that the reservation has changed since the registry decided on it.
	Stale
	// Behind means that an earlier candidate of the same group was not granted.
	Behind
	// Later means that the cycle ended before this candidate. All candidates after it have
	// the same result, or are Behind.
	Later
)

var resultNames = [...]string{"unknown", "granted", "no_fit", "stale", "behind", "later"}

func (r Result) String() string { return resultNames[r] }

// Outcome is the result for one candidate.
type Outcome struct {
	UID    string
	Result Result
	// Lease is the create revision of the granted lease.
	Lease int64
	// Reason and Message say why the candidate was not granted. Fitting is the number of its
	// workers that would fit.
	Reason  fault.Reason
	Message string
	Fitting int
}
