package match

import (
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Owner provides what an index does not know.
type Owner interface {
	// Executor returns the executor with an ID; nil if there is none.
	Executor(id string) *Executor
	// PoolsOf returns the names of the pools that a host is in, in order.
	PoolsOf(constraint.Host) []string
	// ClosedBy returns the IDs of the requests that close the class with these attributes,
	// in order.
	ClosedBy(Attributes) []string
}

// Index finds executors by what they are and by their free capacity. Only one goroutine
// at a time may use it, even to read, because searches reuse its memory.
type Index struct {
	// Limits bounds searches; tests lower them.
	Limits Limits
	// Work counts what searches have looked at since the owner last set Work to 0. A look at
	// an executor counts 1; the steps below, such as workOfLayout, count more.
	Work int

	owner       Owner
	classes     map[string]*Class
	selections  selections
	closed      classSet
	pools       map[string]*Pool
	skus        map[string]*SKU
	lastSKU     int32
	shapes      shapes
	layoutByKey map[string]*layout
	layouts     []*layout
	// fleetFree holds the sum of the free amounts of each resource over all eligible
	// executors.
	fleetFree map[string]*sum
	queries   map[string]*Query
	executors int

	// kindVersion rises whenever an executor is added, is removed or changes its kind, and
	// whenever pools or closed classes change. freeVersion also rises whenever the free
	// capacity of an executor changes. ineligibleVersion rises whenever an ineligible
	// executor changes.
	kindVersion, freeVersion, ineligibleVersion uint64
	// lastKindChange is the number of the newest change with kind.
	lastKindChange uint64
	// changes holds the changes that may turn a refusal into a grant. moves holds the moves
	// that queries apply to their sums.
	changes changeLog[change]
	moves   changeLog[move]
	// points is where recordMove stores the next amounts.
	points []int64

	// searches counts searches.
	searches uint64
	// The following memory is reused by rankings.
	candidates   []candidate
	leftovers    []int64
	rankedBlocks []rankedBlock
}

// Limits holds the sizes at which a search changes its method or stops.
type Limits struct {
	// Block is the maximum number of executors in a block.
	Block int
	// Narrow is the maximum number of executors in a selection that a search looks at one by
	// one, without bounds.
	Narrow int
	// Selections is the maximum number of selections that are kept. Words is the maximum
	// number of words of 64 classes that they use together.
	Selections, Words int
	// Work is the maximum work for the candidates of one scheduling cycle. The owner ends
	// the cycle there.
	Work int
}

// DefaultLimits returns the limits that production uses.
func DefaultLimits() Limits {
	return Limits{Block: blockSize, Narrow: blockSize, Selections: 1 << 12, Words: 1 << 23, Work: 1 << 24}
}

// These are the costs of steps that take longer than a look at an executor, which takes
// some nanoseconds: to place a worker, to align a request to a layout, to look at the
// bounds of a block, to sort and copy an executor, and to compare a change with a
// refusal. The size of the fleet bounds the work of a single candidate, since a search
// looks at each executor a few times at most.
const (
	workOfWorker = 64
	workOfLayout = 64
	workOfBlock  = 8
	workOfMember = 16
	workOfChange = 16
)

// New returns an empty index.
func New(owner Owner) *Index {
	ix := &Index{
		Limits: DefaultLimits(), owner: owner,
		classes: map[string]*Class{}, pools: map[string]*Pool{}, skus: map[string]*SKU{},
		shapes:      shapes{byKey: map[string]*Shape{}},
		layoutByKey: map[string]*layout{}, fleetFree: map[string]*sum{}, queries: map[string]*Query{},
	}
	ix.selections = newSelections(&ix.Limits)
	return ix
}

// Set enters an executor of a kind, or changes its kind. With a nil kind it removes the
// executor. The executor must not be placed.
func (ix *Index) Set(e *Executor, kind *Kind) {
	ix.kindVersion++
	if e.class != nil {
		ix.recordChange(e, true)
		if !e.cell {
			e.shape.layout.idle.remove(e, e.shape.idle)
			ix.executors--
		}
	}
	if kind == nil {
		ix.ineligibleVersion++
		ix.joinKind(e, nil)
		return
	}
	e.Generation, e.cell, e.allowLists = kind.Generation, kind.Cell, kind.AllowLists
	ix.joinKind(e, kind)
	if !e.cell {
		ix.executors++
		e.shape.layout.idle.insert(e, e.shape.idle)
	}
	ix.recordChange(e, true)
}

// Unplace removes an executor from all counts and indexes that depend on its eligibility
// and its free resources. Place adds it again. The eligibility and the free resources may
// change only between the call of Unplace and the call of Place.
func (ix *Index) Unplace(e *Executor) {
	if e.eligibility == Eligible {
		ix.recordMove(e, false)
	}
	ix.addCounts(e, -1)
	if e.listed {
		e.shape.layout.free.remove(e, e.free)
	}
}

// Place adds an executor again after Unplace. Its eligibility is byOwner, unless byOwner
// is Eligible and the executor's class is closed or its leases use more than its
// capacity. Place reports whether the leases are within the capacity.
func (ix *Index) Place(e *Executor, byOwner Eligibility) bool {
	ix.freeVersion++
	before := e.eligibility
	free, within := e.shape.free(e.Leased)
	e.byOwner, e.listed = byOwner, within && byOwner == Eligible && !e.cell
	more := e.derive() == Eligible && (before != Eligible || hasMore(e.free, free))
	e.free = e.free[:0]
	if e.listed {
		e.free = append(e.free, free...)
		e.shape.layout.free.insert(e, e.free)
	}
	ix.count(e)
	if more {
		ix.recordChange(e, false)
	}
	if e.eligibility == Eligible {
		ix.recordMove(e, true)
	} else {
		ix.ineligibleVersion++
	}
	return within
}

// hasMore reports whether an amount is greater now than before.
func hasMore(before, now []int64) bool {
	if len(before) != len(now) {
		return true
	}
	for i := range now {
		if now[i] > before[i] {
			return true
		}
	}
	return false
}

// count derives the eligibility of an executor, and adds it to all counts and sums.
func (ix *Index) count(e *Executor) {
	e.eligibility = e.derive()
	ix.addCounts(e, 1)
}

// addCounts adds an executor to all counts and sums, or subtracts it if sign is -1.
func (ix *Index) addCounts(e *Executor, sign int) {
	e.class.counts[e.eligibility] += sign
	e.shape.counts[e.eligibility] += sign
	if e.eligibility != Lost {
		for _, pool := range e.class.pools {
			pool.Living += sign
		}
	}
	if e.eligibility == Eligible {
		e.shape.addFree(e.free, int64(sign))
		n := e.shape.counts[Eligible]
		ix.shapes.recount(n-sign, n)
	}
}

// Free returns the free capacity of all eligible executors; each sum saturates.
func (ix *Index) Free() resource.Vector {
	free := resource.Vector{}
	for name, sum := range ix.fleetFree {
		if amount := sum.saturated(); amount > 0 {
			free[name] = amount
		}
	}
	return free
}

// Capacity returns the capacity of all executors that are not LOST.
func (ix *Index) Capacity() map[string]float64 {
	capacity := map[string]float64{}
	for _, s := range ix.shapes.byKey {
		for i, name := range s.layout.names {
			capacity[name] += float64(s.capacity[i]) * float64(s.size-s.counts[Lost])
		}
	}
	return capacity
}

// Size describes how large an index is.
type Size struct {
	// Classes and Shapes count the kinds of executors. Blocks counts the blocks of the
	// indexes of free capacity. Selections counts the parts of the fleet that requests have
	// named.
	Classes, Shapes, Blocks, Selections int
}

// Size returns how large the index is.
func (ix *Index) Size() Size {
	s := Size{Classes: len(ix.classes), Shapes: len(ix.shapes.byKey), Selections: len(ix.selections.byText)}
	for _, l := range ix.layouts {
		s.Blocks += len(l.free.blocks)
	}
	return s
}
