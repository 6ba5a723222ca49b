package match

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Explanation says why a batch would be granted or refused now.
type Explanation struct {
	Needed, Fitting int
	// Reason and Message are those of the refusal; empty if all workers would fit.
	Reason  fault.Reason
	Message string
	// Checks lists the failed checks, those with the most executors first.
	Checks []FailedCheck
	// Scarcest is the scarcest requested resource, which decides first between executors;
	// empty if no worker fits.
	Scarcest string
}

// FailedCheck is a check that some executors fail before any other check.
type FailedCheck struct {
	// Check is one of the following, in the order of evaluation:
	//   - "sku", "attributes.zone", "pools"
	//   - "capacity.cpu": the executor is too small even when idle
	//   - "role": the executor is large enough only with the shares of other roles
	//   - "avoid"
	//   - "state", "quarantined", "draining", "disabled", "starts", "overcommitted": not eligible
	//   - "sameShape", "spread": excluded by the workers of the reservation that have executors
	//   - "free.cpu": too little of the resource is free
	//
	// If some workers fit and others do not, the executors that take workers fail "sameShape" or
	// "spread" because of these, or else
	//   - "full.cpu": after some workers of the batch too little of the resource is free
	constraint.Check
	// Executors is how many executors fail the check with the same value.
	Executors int
}

// maxChecks is the maximum number of failed checks in an explanation.
const maxChecks = 50

// Explain returns why a batch of needed workers would be granted or refused now. pinned counts
// by executor the other workers of its reservation that have their executors already. Explain
// costs a look at every class, and at every executor of the classes that the constraints
// select.
func (ix *Index) Explain(k constraint.Constraints, needed int, pinned map[*Executor]int) Explanation {
	s := ix.search(k, needed, pinned)
	fitting := s.fit()
	e := Explanation{Needed: needed, Fitting: fitting}
	if fitting < needed {
		e.Reason, e.Message = ix.reason(k, needed, fitting, s.limited())
	}
	if fitting > 0 {
		if scarce := ix.search(k, needed, pinned).scarcity(); len(scarce) > 0 {
			e.Scarcest = scarce[0]
		}
	}
	q := ix.Query(k)
	x := explainer{
		index: ix, constraints: k, query: q, avoided: s.avoided, pins: s.pins,
		failed: map[failure]int{}, mismatches: map[string]*mismatch{}, shapes: map[*Shape]*shapeResult{},
		aligned: map[*layout]*alignedRequest{},
	}
	for class := range ix.Classes(nil) {
		if x.matches(class) {
			for _, e := range class.executors {
				x.executor(e)
			}
		}
	}
	x.failShapes()
	if 0 < fitting && fitting < needed {
		if full := x.failTakers(s); full != "" {
			e.Message += "; " + full
		}
	}
	e.Checks = x.checks()
	return e
}

// failure is a failed check before its texts are made.
type failure struct {
	check constraint.Check
	// A check of an amount has a kind, the name of the resource, and in have its amount. Any
	// other check sets only check.
	kind, name string
	have       int64
}

// mismatch counts the executors that fail one check of SKU, attributes or pools, by the
// value that they have instead.
type mismatch struct {
	want   string
	byHave map[string]int
}

// explainer counts the failed checks of one request.
type explainer struct {
	index       *Index
	constraints constraint.Constraints
	query       *Query
	avoided     map[*Executor]bool
	pins        pins
	failed      map[failure]int
	// mismatches are by check. A check may have as many values as there are executors.
	mismatches map[string]*mismatch
	shapes     map[*Shape]*shapeResult
	aligned    map[*layout]*alignedRequest
	// takers are the executors that pass all checks.
	takers []*Executor
}

// shapeResult is the result of the explanation for the executors of one shape.
type shapeResult struct {
	// small counts the executors of a shape that is too small. aligned is nil for such a
	// shape.
	small   int
	aligned *alignedRequest
	// ineligible counts the executors of a shape that is large enough, by eligibility.
	ineligible [eligibilities]int
}

// matches reports whether the query selects a class. If not, it counts the executors of
// the class.
func (x *explainer) matches(k *Class) bool {
	ok, failed := x.query.matcher.Match(k.host)
	if ok {
		return true
	}
	m := x.mismatches[failed.Name]
	if m == nil {
		m = &mismatch{failed.Want, map[string]int{}}
		x.mismatches[failed.Name] = m
	}
	m.byHave[failed.Have] += len(k.executors)
	return false
}

// executor counts an executor of a class that the query selects.
func (x *explainer) executor(e *Executor) {
	r := x.shapes[e.shape]
	if r == nil {
		r = &shapeResult{}
		if x.query.Fits(e.shape) {
			r.aligned = x.align(e.shape.layout)
		}
		x.shapes[e.shape] = r
	}
	switch {
	case r.aligned == nil:
		r.small++
	case x.avoided[e]:
		x.failed[failure{check: constraint.Check{Name: "avoid", Want: "another executor", Have: e.ID}}]++
	case e.eligibility == Overcommitted:
		x.failed[failure{check: constraint.Check{Name: "overcommitted", Want: "used within capacity", Have: e.Excess()}}]++
	case e.eligibility != Eligible:
		r.ineligible[e.eligibility]++
	case x.pins.exclude(e) != "":
		x.failed[failure{check: x.pins.check(e, x.constraints.Spread.By)}]++
	default:
		at, have := r.aligned.lacks(e.free)
		if at < 0 {
			x.takers = append(x.takers, e)
			return
		}
		x.failed[failure{kind: "free.", name: e.shape.layout.names[at], have: have}]++
	}
}

// align returns the request in the order of a layout.
func (x *explainer) align(l *layout) *alignedRequest {
	if x.aligned[l] == nil {
		x.aligned[l] = x.index.align(l, x.query)
	}
	return x.aligned[l]
}

// failShapes adds the failures that were counted by shape.
func (x *explainer) failShapes() {
	for shape, r := range x.shapes {
		for eligibility, n := range r.ineligible {
			if n > 0 {
				x.failed[failure{check: eligibilityChecks[eligibility]}] += n
			}
		}
		if r.small > 0 {
			x.failed[x.tooSmall(shape)] += r.small
		}
	}
}

// tooSmall returns the check that a shape fails because it is too small.
func (x *explainer) tooSmall(s *Shape) failure {
	if name, short := x.lacks(s.resources); short {
		return failure{kind: "capacity.", name: name, have: s.resources[name]}
	}
	allowed := s.Allowed(x.constraints.Role)
	name, _ := x.lacks(allowed)
	return failure{kind: "role", name: name, have: allowed[name]}
}

// lacks returns the first resource of which have contains less than a worker requests.
func (x *explainer) lacks(have resource.Vector) (name string, short bool) {
	for _, name := range x.constraints.Resources.Names() {
		if x.constraints.Resources[name] > have[name] {
			return name, true
		}
	}
	return "", false
}

// checks returns the failed checks with their texts, those with the most executors first.
func (x *explainer) checks() []FailedCheck {
	var list []FailedCheck
	add := func(f FailedCheck) {
		at, _ := slices.BinarySearchFunc(list, f, compareFailed)
		if at < maxChecks {
			list = slices.Insert(list[:min(len(list), maxChecks-1)], at, f)
		}
	}
	for failure, n := range x.failed {
		add(FailedCheck{failure.withTexts(x.constraints), n})
	}
	for name, m := range x.mismatches {
		for have, n := range m.byHave {
			add(FailedCheck{constraint.Check{Name: name, Want: m.want, Have: have}, n})
		}
	}
	return list
}

func compareFailed(a, b FailedCheck) int {
	return cmp.Or(cmp.Compare(b.Executors, a.Executors), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Have, b.Have),
		cmp.Compare(a.Want, b.Want))
}

func (f failure) withTexts(k constraint.Constraints) constraint.Check {
	have := strconv.FormatInt(f.have, 10)
	switch f.kind {
	case "":
		return f.check
	case "role":
		role := k.Role
		if role == "" {
			role = "none"
		}
		return constraint.Check{Name: "role", Want: role, Have: fmt.Sprintf("%s %s not set aside for others", f.name, have)}
	}
	return constraint.Check{Name: f.kind + f.name, Want: strconv.FormatInt(k.Resources[f.name], 10), Have: have}
}

// eligibilityChecks are the checks that ineligible executors fail, by eligibility.
var eligibilityChecks = [...]constraint.Check{
	Registered:  {Name: "state", Want: "READY", Have: "REGISTERED"},
	Unreachable: {Name: "state", Want: "READY", Have: "UNREACHABLE"},
	Lost:        {Name: "state", Want: "READY", Have: "LOST"},
	Quarantined: {Name: "quarantined", Want: "leases that can be read", Have: "a lease that cannot be read"},
	Draining:    {Name: "draining", Want: "not draining", Have: "draining"},
	Disabled:    {Name: "disabled", Want: "not disabled", Have: "disabled"},
	FailsStarts: {Name: "starts", Want: "starts that succeed", Have: string(fault.ReasonFailsStarts)},
	Cell:        {Name: "kind", Want: "HOST", Have: "CELL"},
}
