package match

import (
	"cmp"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Executor is an executor in an [Index]. Its owner sets Ordinal and Leased, and changes
// what they contain only while the executor is not placed.
type Executor struct {
	// ID and Generation are those of its kind.
	ID         string
	Generation int64
	Ordinal    uint32
	// Leased is what leases use of it.
	Leased *Leased

	// class and shape follow from its kind; at is its place in the class.
	class *Class
	shape *Shape
	at    int
	// byOwner is the eligibility that its owner set; eligibility takes its class and its
	// leases into account.
	byOwner, eligibility Eligibility
	// listed: it is in layout.free, so it is eligible unless its class is closed. Free is
	// the result of [Shape.free] while it is listed.
	listed bool
	free   []int64
	// lastFreed is the number of its newest change without kind in Index.changes.
	lastFreed uint64
}

// Kind is what an executor registers as.
type Kind struct {
	SKU        string
	Attributes map[string]string
	Resources  resource.Vector
	// Reserved are the shares of Resources that it sets aside, by role.
	Reserved   map[string]resource.Vector
	Generation int64
}

// Leased is what leases use of an executor.
type Leased struct {
	// Workers counts workers, Used is what they use.
	Workers int
	Used    resource.Vector
	// byRole is the part of Used of each role, by folded role; nil without roles.
	byRole map[string]resource.Vector
}

// Add adds n workers of a role that use each; n may be negative.
func (l *Leased) Add(n int, each resource.Vector, role string) {
	if l.Used == nil {
		l.Used = resource.Vector{}
	}
	l.Workers += n
	addTo(l.Used, n, each)
	if role == "" {
		return
	}
	role = constraint.Fold(role)
	if l.byRole[role] == nil {
		if l.byRole == nil {
			l.byRole = map[string]resource.Vector{}
		}
		l.byRole[role] = resource.Vector{}
	}
	addTo(l.byRole[role], n, each)
	if len(l.byRole[role]) == 0 {
		delete(l.byRole, role)
	}
}

// addTo adds n times each, and deletes resources whose amount becomes 0.
func addTo(used resource.Vector, n int, each resource.Vector) {
	for name, amount := range each {
		if sum := used[name] + int64(n)*amount; sum != 0 {
			used[name] = sum
		} else {
			delete(used, name)
		}
	}
}

// Class returns the class of the executor.
func (e *Executor) Class() *Class { return e.class }

// Shape returns the shape of the executor.
func (e *Executor) Shape() *Shape { return e.shape }

// Eligibility returns whether the executor may be given work, and why not.
func (e *Executor) Eligibility() Eligibility { return e.eligibility }

// Idle reports whether the executor is eligible and no lease uses it.
func (e *Executor) Idle() bool { return e.eligibility == Eligible && e.Leased.Workers == 0 }

// Compare orders executors of equal fit, the preferred first: the newest generation,
// then the lowest ID.
func Compare(a, b *Executor) int {
	if a.Generation != b.Generation {
		return cmp.Compare(b.Generation, a.Generation)
	}
	return cmp.Compare(a.ID, b.ID)
}

// Eligibility is whether an executor may be given work, or the first reason why not.
type Eligibility uint8

const (
	// Eligible executors may be given work.
	Eligible Eligibility = iota
	// Registered executors are in that state.
	Registered
	// Unreachable executors are in that state.
	Unreachable
	// Lost executors are in that state.
	Lost
	// Quarantined executors have leases that cannot be read.
	Quarantined
	// Draining executors are drained.
	Draining
	// Disabled executors are named by a request, or a request closes their class.
	Disabled
	// Overcommitted executors have leases that use more than their capacity.
	Overcommitted
	eligibilities
)

// derive returns the eligibility of a placed executor.
func (e *Executor) derive() Eligibility {
	switch {
	case e.byOwner != Eligible:
		return e.byOwner
	case len(e.class.closedBy) > 0:
		return Disabled
	case !e.listed:
		return Overcommitted
	}
	return Eligible
}
