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

// Explanation is why a batch would or would not be granted now.
type Explanation struct {
	Needed, Fitting int
	// Reason and Message are those of the refusal, empty when all would fit.
	Reason  fault.Reason
	Message string
	// Checks are those that fail, most executors first.
	Checks []FailedCheck
	// Scarcest is the scarcest resource, by which executors are chosen; empty where
	// no worker fits.
	Scarcest string
}

// FailedCheck is the first check that some executors do not pass.
type FailedCheck struct {
	// Check is, in the order that they are made: "sku", "attributes.zone",
	// "pools"; "capacity.cpu" where not even an idle executor had enough, "role"
	// where it had only with what is set aside for other roles; "avoid"; "state",
	// "quarantined", "draining", "disabled" and "overcommitted" where it may not be given work; "free.cpu"
	// where too little is left of it.
	constraint.Check
	// Executors is how many fail it just so.
	Executors int
}

// maxChecks is how many failed checks an explanation tells of.
const maxChecks = 50

// Explain answers why needed workers of the constraints would or would not be
// granted now. It costs a look at every class of executors, and at every executor
// of the classes that are of the kind asked for.
func (ix *Index) Explain(k constraint.Constraints, needed int) Explanation {
	fitting := ix.fit(k, needed)
	e := Explanation{Needed: needed, Fitting: fitting}
	if fitting < needed {
		e.Reason, e.Message = ix.reason(k, needed, fitting)
	}
	if fitting > 0 {
		if scarce := ix.search(k, needed).scarcity(); len(scarce) > 0 {
			e.Scarcest = scarce[0]
		}
	}
	q := ix.Query(k)
	x := explaining{
		constraints: k, query: q, names: k.Resources.Names(), avoided: ix.Avoided(k, q),
		failed: map[failure]int{}, kinds: map[string]*otherKinds{}, verdicts: map[*Shape]*verdict{},
		aims: map[*form]*aim{},
	}
	for class := range ix.sections.all(ix.sections.whole) {
		if x.kind(class) {
			for _, h := range class.executors {
				x.executor(ix, h)
			}
		}
	}
	x.shapes()
	e.Checks = x.checks()
	return e
}

// failure is a failed check before it is put into words.
type failure struct {
	check constraint.Check
	// kind and name are the check's where it is of an amount; have is that.
	kind, name string
	have       int64
}

// otherKinds counts the executors that fail one check of what they are, by what
// they have instead.
type otherKinds struct {
	want   string
	byHave map[string]int
}

// explaining counts the failures of one question.
type explaining struct {
	constraints constraint.Constraints
	query       *Query
	names       []string
	avoided     map[*Executor]bool
	failed      map[failure]int
	// kinds are the failures to be of the kind asked for, by check. There may
	// be as many as executors.
	kinds    map[string]*otherKinds
	verdicts map[*Shape]*verdict
	aims     map[*form]*aim
}

// verdict is what becomes of the executors of a shape.
type verdict struct {
	// small counts those of a shape that is not large enough; aim is nil then.
	small int
	aim   *aim
	// standing counts the others by why they may not be given work.
	standing [standings]int
}

// kind reports whether a class is of the kind asked for, and counts its executors if
// not.
func (x *explaining) kind(k *Class) bool {
	ok, failed := x.query.matcher.Match(k.host)
	if ok {
		return true
	}
	others := x.kinds[failed.Name]
	if others == nil {
		others = &otherKinds{failed.Want, map[string]int{}}
		x.kinds[failed.Name] = others
	}
	others.byHave[failed.Have] += len(k.executors)
	return false
}

// executor counts one of the kind asked for.
func (x *explaining) executor(ix *Index, h *Executor) {
	v := x.verdicts[h.shape]
	if v == nil {
		v = &verdict{}
		if x.query.Fits(h.shape) {
			v.aim = x.aim(ix, h.shape.form)
		}
		x.verdicts[h.shape] = v
	}
	switch {
	case v.aim == nil:
		v.small++
	case x.avoided[h]:
		x.fail(failure{check: constraint.Check{Name: "avoid", Want: "another executor", Have: h.ID}}, 1)
	case h.standing == Overcommitted:
		x.fail(failure{check: constraint.Check{Name: "overcommitted", Want: "used within capacity", Have: h.Excess()}}, 1)
	case h.standing != Open:
		v.standing[h.standing]++
	default:
		if at, have := v.aim.short(h.free); at >= 0 {
			x.fail(failure{kind: "free.", name: h.shape.names[at], have: have}, 1)
		}
	}
}

func (x *explaining) fail(f failure, n int) { x.failed[f] += n }

// aim answers the request in the order of a form.
func (x *explaining) aim(ix *Index, f *form) *aim {
	a := x.aims[f]
	if a == nil {
		a = ix.aimAt(f, x.query.resources, x.query.role)
		x.aims[f] = a
	}
	return a
}

// shapes counts what became of the executors of each shape.
func (x *explaining) shapes() {
	for shape, v := range x.verdicts {
		for why, n := range v.standing {
			if n > 0 {
				x.fail(failure{check: standingChecks[why]}, n)
			}
		}
		if v.small > 0 {
			x.fail(x.small(shape), v.small)
		}
	}
}

// small is how a shape is not large enough.
func (x *explaining) small(s *Shape) failure {
	if name, short := x.lacks(s.resources); short {
		return failure{kind: "capacity.", name: name, have: s.resources[name]}
	}
	allowed := s.Allowed(x.constraints.Role)
	name, _ := x.lacks(allowed)
	return failure{kind: "role", name: name, have: allowed[name]}
}

// lacks answers the first resource of which there is less than asked for.
func (x *explaining) lacks(have resource.Vector) (name string, short bool) {
	for _, name := range x.names {
		if x.constraints.Resources[name] > have[name] {
			return name, true
		}
	}
	return "", false
}

// checks puts the failures into words, most executors first.
func (x *explaining) checks() []FailedCheck {
	var list []FailedCheck
	add := func(f FailedCheck) {
		at, _ := slices.BinarySearchFunc(list, f, compareFailed)
		if at < maxChecks {
			list = slices.Insert(list[:min(len(list), maxChecks-1)], at, f)
		}
	}
	for failure, n := range x.failed {
		add(FailedCheck{failure.words(x.constraints), n})
	}
	for name, others := range x.kinds {
		for have, n := range others.byHave {
			add(FailedCheck{constraint.Check{Name: name, Want: others.want, Have: have}, n})
		}
	}
	return list
}

func compareFailed(a, b FailedCheck) int {
	return cmp.Or(cmp.Compare(b.Executors, a.Executors), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Have, b.Have), cmp.Compare(a.Want, b.Want))
}

func (f failure) words(k constraint.Constraints) constraint.Check {
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

// standingChecks are the checks that executors fail by their standing.
var standingChecks = [...]constraint.Check{
	Registered:  {Name: "state", Want: "READY", Have: "REGISTERED"},
	Unreachable: {Name: "state", Want: "READY", Have: "UNREACHABLE"},
	Lost:        {Name: "state", Want: "READY", Have: "LOST"},
	Quarantined: {Name: "quarantined", Want: "leases that can be read", Have: "a lease that cannot be read"},
	Draining:    {Name: "draining", Want: "not draining", Have: "draining"},
	Disabled:    {Name: "disabled", Want: "not disabled", Have: "disabled"},
}
