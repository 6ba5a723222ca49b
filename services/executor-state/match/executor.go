package match

import (
	"cmp"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Executor is an executor in an [Index]. Its owner sets Ordinal and Leased, and changes
// the content of Leased only while the executor is not placed.
type Executor struct {
	// ID and Generation belong to the executor's registration.
	ID         string
	Generation int64
	Ordinal    uint32
	// Leased is what leases and volumes use of the executor.
	Leased *Leased

	// class and shape follow from the executor's kind; at is its place in the class.
	class *Class
	shape *Shape
	at    int
	cell  bool
	// allowLists is Kind.AllowLists.
	allowLists string
	// byOwner is the eligibility that the owner set. eligibility also takes the class and
	// the leases into account; see derive.
	byOwner, eligibility Eligibility
	// listed reports whether the executor is in layout.free: it is then eligible unless its
	// class is closed. free is the result of [Shape.free] while the executor is listed.
	listed bool
	free   []int64
	// lastFreed is the number of the executor's newest change without kind in Index.changes.
	lastFreed uint64
}

// Kind is what an executor declares when it registers.
type Kind struct {
	SKU        string
	Attributes map[string]string
	Resources  resource.Vector
	// Reserved are the shares of Resources that the executor sets aside, by role.
	Reserved   map[string]resource.Vector
	Generation int64
	// Cell is set if the executor is a cell. The searches of the index leave cells out.
	Cell bool
	// AllowLists is a digest of the allow-lists of the agent; empty if it is not known. Executors
	// with equal lists refuse the same tasks.
	AllowLists string
}

// Leased is the part of an executor that leases and volumes use.
type Leased struct {
	// Workers counts the leased workers, and Volumes the volumes. Used is what both use.
	Workers, Volumes int
	Used             resource.Vector
	// byRole is the part of Used that each role uses, by folded role; nil without roles.
	byRole map[string]resource.Vector
}

// Add adds n workers of a role, each of which uses each; n may be negative.
func (l *Leased) Add(n int, each resource.Vector, role string) {
	l.Workers += n
	l.use(n, each, role)
}

// Hold adds n volumes of a role, each of which holds the amounts; n may be negative.
func (l *Leased) Hold(n int, holds resource.Vector, role string) {
	l.Volumes += n
	l.use(n, holds, role)
}

func (l *Leased) use(n int, each resource.Vector, role string) {
	if l.Used == nil {
		l.Used = resource.Vector{}
	}
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

// Eligibility returns Eligible if the executor may be given work, and otherwise the first
// reason why not.
func (e *Executor) Eligibility() Eligibility { return e.eligibility }

// Idle reports whether the executor is eligible and has no leased worker and no volume.
func (e *Executor) Idle() bool {
	return e.eligibility == Eligible && e.Leased.Workers == 0 && e.Leased.Volumes == 0
}

// Compare orders executors of equal fit, the preferred first: the newest generation,
// then the lowest ID.
func Compare(a, b *Executor) int {
	if a.Generation != b.Generation {
		return cmp.Compare(b.Generation, a.Generation)
	}
	return cmp.Compare(a.ID, b.ID)
}

// Eligibility says that an executor may be given work, or why not.
type Eligibility uint8

const (
	// Eligible executors may be given work.
	Eligible Eligibility = iota
	// Registered executors are in the state REGISTERED.
	Registered
	// Unreachable executors are in the state UNREACHABLE.
	Unreachable
	// Lost executors are in the state LOST.
	Lost
	// Quarantined executors have leases that cannot be read.
	Quarantined
	// Draining executors are drained.
	Draining
	// Disabled executors are named by a request to disable, or such a request closes their
	// class.
	Disabled
	// FailsStarts executors are skipped for a while, because starts fail on them.
	FailsStarts
	// Cell executors are cells to which a reservation may be offered.
	Cell
	// Overcommitted executors have leases that use more than their capacity.
	Overcommitted
	eligibilities
)

// derive returns the eligibility of a placed executor: the reason of its owner if there
// is one, otherwise Disabled if its class is closed, otherwise Cell if it is one, otherwise
// Overcommitted if its leases use more than its capacity. No other code decides the eligibility.
func (e *Executor) derive() Eligibility {
	switch {
	case e.byOwner != Eligible:
		return e.byOwner
	case len(e.class.closedBy) > 0:
		return Disabled
	case e.cell:
		return Cell
	case !e.listed:
		return Overcommitted
	}
	return Eligible
}
