package usage

import (
	"fmt"

	"berth.dev/api/fault"
	"berth.dev/services/executor-state/match"
)

// kind determines whether demand could use an idle executor.
type kind struct {
	class *match.Class
	shape *match.Shape
}

// IdleReason says why an executor is idle.
type IdleReason struct {
	// Reason is NO_DEMAND if no pending demand could use executors of this kind. It is
	// DEMAND_DOES_NOT_FIT if pending demand could, but its workers are too large or not all
	// workers of a batch fit.
	Reason  fault.Reason
	Message string
}

// Reasons returns a function that returns why an executor is idle. The function looks at
// the demand once for each kind of executor, and is valid until the tally changes.
func (t *Tally) Reasons() func(*match.Executor) IdleReason {
	type group struct {
		*demand
		*match.Query
	}
	var groups []group
	for _, d := range inOrder(t.demand) {
		groups = append(groups, group{d, t.index.Query(d.constraints)})
	}
	byKind := map[kind]IdleReason{}
	return func(e *match.Executor) IdleReason {
		of := kind{e.Class(), e.Shape()}
		if known, ok := byKind[of]; ok {
			return known
		}
		reason := IdleReason{fault.ReasonNoDemand, "no pending demand for executors of this kind"}
		for _, g := range groups { // find the first group that could use the kind at all
			if !g.Matches(of.class.Host()) {
				continue
			}
			why := "not all workers of a batch fit"
			if !g.Fits(of.shape) {
				why = "each worker is too large for the executor"
			}
			reason = IdleReason{fault.ReasonDemandDoesNotFit,
				fmt.Sprintf("demand of group %s (reservations: %d) is pending: %s", g.constraints.Group(), g.reservations, why)}
			break
		}
		byKind[of] = reason
		return reason
	}
}
