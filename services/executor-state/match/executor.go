package match

import (
	"cmp"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Executor is an executor in an [Index]. Its owner sets Ordinal and Held, and changes
// what they hold only while the executor is not placed.
type Executor struct {
	// ID and Generation are those of its kind.
	ID         string
	Generation int64
	Ordinal    uint32
	// Held is what leases hold of it.
	Held *Held

	// class and shape are its kind, at its place in the class.
	class *Class
	shape *Shape
	at    int
	// known is the standing that its owner gave, standing the one that counts.
	known, standing Standing
	// listed: it is in layout.open, so it may be given work unless its class is closed.
	// Free is as [Shape.free] returns it, while it is listed.
	listed bool
	free   []int64
	// freed is the number of its newest entry in Index.freed that is not of a kind.
	freed uint64
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

// Held is what leases hold of an executor.
type Held struct {
	// Workers counts workers, Used is what they take.
	Workers int
	Used    resource.Vector
	// byRole is what of it leases of each role hold, by folded role; nil while none
	// does.
	byRole map[string]resource.Vector
}

// Add adds n workers of a role that hold so much each; n may be negative.
func (h *Held) Add(n int, each resource.Vector, role string) {
	if h.Used == nil {
		h.Used = resource.Vector{}
	}
	h.Workers += n
	addTo(h.Used, n, each)
	if role == "" {
		return
	}
	role = constraint.Fold(role)
	if h.byRole[role] == nil {
		if h.byRole == nil {
			h.byRole = map[string]resource.Vector{}
		}
		h.byRole[role] = resource.Vector{}
	}
	addTo(h.byRole[role], n, each)
	if len(h.byRole[role]) == 0 {
		delete(h.byRole, role)
	}
}

// addTo adds n times each, and deletes a resource of which nothing is left.
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

// Standing returns why the executor may or may not be given work.
func (e *Executor) Standing() Standing { return e.standing }

// Idle reports whether the executor may be given work and holds none.
func (e *Executor) Idle() bool { return e.standing == Open && e.Held.Workers == 0 }

// Compare orders executors of equal fit, the preferred first: the newest generation,
// then the lowest ID.
func Compare(a, b *Executor) int {
	if a.Generation != b.Generation {
		return cmp.Compare(b.Generation, a.Generation)
	}
	return cmp.Compare(a.ID, b.ID)
}

// Standing is why an executor may or may not be given work. The first that applies
// counts.
type Standing uint8

const (
	// Open: it may be given work.
	Open Standing = iota
	Registered
	Unreachable
	Lost
	// Quarantined: what leases hold of it is not known.
	Quarantined
	Draining
	// Disabled: a request names it or closes its class.
	Disabled
	// Overcommitted: leases hold more of it than it has.
	Overcommitted
	standings
)

// standingNow returns the standing of an executor that is placed.
func (e *Executor) standingNow() Standing {
	switch {
	case e.known != Open:
		return e.known
	case len(e.class.closedBy) > 0:
		return Disabled
	case !e.listed:
		return Overcommitted
	}
	return Open
}

// tally adds n to what its class, its shape and its pools count of the executor.
func (e *Executor) tally(n int) {
	e.class.counts[e.standing] += n
	e.shape.counts[e.standing] += n
	if e.standing != Lost {
		for _, pool := range e.class.pools {
			pool.Living += n
		}
	}
}
