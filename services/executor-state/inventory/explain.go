package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/fault"
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
}

// FailedCheck is the first check that some executors do not pass.
type FailedCheck struct {
	// Check is, in the order that they are made: "sku", "attributes.zone",
	// "pools"; "capacity.cpu" where not even an idle executor had enough, "role"
	// where it had only with what is set aside for other roles; "avoid"; "state",
	// "draining", "disabled" and "overcommitted" where it may not be given work; "free.cpu"
	// where too little is left of it.
	constraint.Check
	// Executors is how many fail it just so.
	Executors int
}

// maxChecks is how many failed checks an explanation tells of.
const maxChecks = 50

// Explain answers why needed workers of the constraints would or would not be
// granted now. It looks at kinds of executors and at how many of each have the
// same left, not at each executor, unless each is a kind of its own.
func (c *Core) Explain(k constraint.Constraints, needed int) Explanation {
	_, fitting := c.search(k, needed).plan()
	e := Explanation{Needed: needed, Fitting: fitting}
	if fitting < needed {
		e.Reason, e.Message = c.refusal(k, needed, fitting)
	}
	x := explaining{
		constraints: k, query: c.query(k), names: k.Resources.Names(),
		failed: map[failure]int{}, kinds: map[string]*otherKinds{},
	}
	for class := range c.sections.whole.classes.all() {
		x.kind(class)
	}
	for _, lot := range x.query.small {
		if lot.size > 0 {
			x.small(lot)
		}
	}
	x.avoid(c, c.avoided(k, x.query))
	for _, eligible := range x.query.eligible {
		x.standing(eligible.lot)
		x.free(eligible)
	}
	x.overcommitted(c)
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
	query       *query
	names       []string
	failed      map[failure]int
	// kinds are the failures to be of the kind asked for, by check. There may
	// be as many as executors.
	kinds map[string]*otherKinds
	// avoided are the executors that fail by being avoided, and so by nothing
	// after it.
	avoided map[*host]bool
	// shunned counts those of avoided in each bucket.
	shunned map[*bucket]int
}

// kind counts the executors of a class that is not of the kind asked for.
func (x *explaining) kind(k *class) {
	ok, failed := x.query.matcher.Match(k.host)
	if ok {
		return
	}
	others := x.kinds[failed.Name]
	if others == nil {
		others = &otherKinds{failed.Want, map[string]int{}}
		x.kinds[failed.Name] = others
	}
	others.byHave[failed.Have] += len(k.hosts)
}

// small counts the executors of a lot that is not large enough.
func (x *explaining) small(l *lot) {
	if name, short := x.lacks(l.shape.resources); short {
		x.failed[failure{kind: "capacity.", name: name, have: l.shape.resources[name]}] += l.size
		return
	}
	allowed := l.shape.allowed(x.constraints.Role)
	name, _ := x.lacks(allowed)
	x.failed[failure{kind: "role", name: name, have: allowed[name]}] += l.size
}

// avoid counts those of eligible lots that are to be avoided.
func (x *explaining) avoid(c *Core, ids map[string]bool) {
	x.avoided, x.shunned = map[*host]bool{}, map[*bucket]int{}
	for id := range ids {
		h := c.hosts[id]
		if h == nil || !x.query.takes(h) {
			continue
		}
		x.failed[failure{check: constraint.Check{Name: "avoid", Want: "another executor", Have: id}}]++
		x.avoided[h] = true
		x.shunned[x.query.postOf(h).bucket]++
	}
}

// standing counts those of an eligible lot that may not be given work.
func (x *explaining) standing(l *lot) {
	count := l.standing
	for h := range x.avoided {
		if x.query.postOf(h).lot == l {
			count[h.standing]--
		}
	}
	for why := open + 1; why < overcommitted; why++ {
		if count[why] > 0 {
			x.failed[failure{check: standingChecks[why]}] += count[why]
		}
	}
}

// overcommitted counts those that hold more than they have: few, and each with
// its own lack.
func (x *explaining) overcommitted(c *Core) {
	for _, h := range c.over {
		if h.standing == overcommitted && !x.avoided[h] && x.query.takes(h) {
			x.failed[failure{check: constraint.Check{Name: "overcommitted", Want: "used within capacity", Have: h.excess()}}]++
		}
	}
}

// free counts those of an eligible lot that have too little left.
func (x *explaining) free(e eligible) {
	for _, b := range e.lot.list {
		at, have := b.short(e.need, e.share)
		if n := b.hosts.len() - x.shunned[b]; at >= 0 && n > 0 {
			x.failed[failure{kind: "free.", name: e.lot.shape.names[at], have: have}] += n
		}
	}
}

// short answers the first resource of which the bucket's executors have less
// than needed, and how much; -1 for none.
func (b *bucket) short(need []int64, share int) (at int, have int64) {
	own := b.free[share*len(need):]
	for i, amount := range need {
		have := b.free[i]
		if share > 0 {
			have += own[i]
		}
		if have < amount {
			return i, have
		}
	}
	return -1, 0
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
	registered:  {Name: "state", Want: "READY", Have: "REGISTERED"},
	unreachable: {Name: "state", Want: "READY", Have: "UNREACHABLE"},
	lost:        {Name: "state", Want: "READY", Have: "LOST"},
	draining:    {Name: "draining", Want: "not draining", Have: "draining"},
	disabled:    {Name: "disabled", Want: "not disabled", Have: "disabled"},
}
