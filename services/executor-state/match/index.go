package match

import (
	"iter"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/resource"
)

// Owner decides what an index does not know by itself.
type Owner interface {
	// Executor returns the executor with an ID; nil for none.
	Executor(id string) *Executor
	// PoolsOf returns the names of the pools that a host is in, in order.
	PoolsOf(constraint.Host) []string
	// ClosedBy returns the IDs of the requests that close the class of executors with
	// such attributes, in order.
	ClosedBy(Attributes) []string
}

// Index is the executors, found by what they are and by what they have free. It must
// not be used by two goroutines at once, reads included: searches reuse its memory.
type Index struct {
	// Limits bounds searches; tests lower them.
	Limits Limits
	// Spent is how much searches have looked at since the owner last set it to 0. An
	// executor counts 1, see workOfForm and its neighbors.
	Spent int

	owner     Owner
	classes   map[string]*Class
	sections  sections
	closed    classSet
	pools     map[string]*Pool
	skus      map[string]*SKU
	lastSKU   int32
	shapes    shapes
	formByKey map[string]*form
	forms     []*form
	total     map[string]*sum
	queries   map[string]*Query
	executors int

	// kinds rises whenever an executor comes, goes or changes what it is, or pools or
	// closed classes do; moves whenever one changes what it has free too; shutCount
	// whenever an executor changes that may not be given work.
	kinds, moves, shutCount uint64
	// freed is what may make room for what was refused, placed what follows the sums of
	// queries.
	freed freed
	moved moved

	// searches counts searches.
	searches uint64
	// What follows is memory that searches reuse.
	rooms      []shapeRoom
	touched    []int32
	skipped    []skippedBlock
	candidates []candidate
	lefts      []int64
	visited    []rankedBlock
	order      []*rankedBlock
}

// Limits are how far searches go before they are done in another way.
type Limits struct {
	// Block is how many executors a block has at most.
	Block int
	// Narrow is up to how many executors of a section are looked at one by one,
	// without bounds.
	Narrow int
	// Sections is how many sections are kept, Words how many words of 64 classes they
	// take together.
	Sections, Words int
	// Work is what the entries of one scheduling cycle may spend; the owner stops when
	// it is reached.
	Work int
}

// DefaultLimits returns the limits that production uses.
func DefaultLimits() Limits {
	return Limits{Block: blockSize, Narrow: blockSize, Sections: 1 << 12, Words: 1 << 23, Work: 1 << 24}
}

// What takes longer than a look at an executor, some nanoseconds, counts for more: a
// worker that is placed, a form in the order of which a request is put, the bounds of a
// block, an executor that is sorted and copied, a change that a refusal is held against.
// What a single entry spends is bounded by the fleet, of which it looks at each executor
// a few times at most.
const (
	workOfWorker = 64
	workOfForm   = 64
	workOfBlock  = 8
	workOfMember = 16
	workOfNote   = 16
)

// New returns an empty index.
func New(owner Owner) *Index {
	ix := &Index{
		Limits: DefaultLimits(), owner: owner,
		classes: map[string]*Class{}, pools: map[string]*Pool{}, skus: map[string]*SKU{},
		shapes: shapes{byKey: map[string]*Shape{}}, formByKey: map[string]*form{}, total: map[string]*sum{}, queries: map[string]*Query{},
	}
	ix.sections = newSections(&ix.Limits)
	return ix
}

// Set makes an executor one of a kind: a new one, or one that changes what it is. With
// a nil kind it removes the executor. The executor must not be placed.
func (ix *Index) Set(e *Executor, kind *Kind) {
	ix.kinds++
	if e.class != nil {
		ix.freed.note(e, true)
		e.shape.form.all.remove(e, e.shape.idle)
		ix.executors--
	}
	if kind == nil {
		ix.shutCount++
		ix.joinKind(e, nil)
		return
	}
	e.Generation = kind.Generation
	ix.joinKind(e, kind)
	ix.executors++
	e.shape.form.all.insert(e, e.shape.idle)
	ix.freed.note(e, true)
}

// Unplace takes an executor out of everything that its standing and its free resources
// decide; Place puts it back. Between them, and only there, may they change.
func (ix *Index) Unplace(e *Executor) {
	if e.standing == Open {
		ix.moved.note(e, false)
	}
	ix.uncount(e)
	if e.listed {
		e.shape.form.open.remove(e, e.free)
	}
}

// Place puts an executor back, with its standing as far as its class and what leases
// hold of it do not decide. Place reports whether leases hold no more than there is.
func (ix *Index) Place(e *Executor, standing Standing) bool {
	ix.moves++
	before := e.standing
	free, within := e.shape.free(e.Held)
	e.known, e.listed = standing, within && standing == Open
	more := e.standingNow() == Open && (before != Open || hasMore(e.free, free))
	e.free = e.free[:0]
	if e.listed {
		e.free = append(e.free, free...)
		e.shape.form.open.insert(e, e.free)
	}
	ix.count(e)
	if more {
		ix.freed.note(e, false)
	}
	if e.standing == Open {
		ix.moved.note(e, true)
	} else {
		ix.shutCount++
	}
	return within
}

// count adds a placed executor to all sums, and uncount takes it out.
func (ix *Index) count(e *Executor) {
	e.standing = e.standingNow()
	e.tally(1)
	if e.standing == Open {
		e.shape.offer(e.free)
		ix.shapes.opened(e.shape.counts[Open]-1, e.shape.counts[Open])
	}
}

func (ix *Index) uncount(e *Executor) {
	e.tally(-1)
	if e.standing == Open {
		e.shape.withdraw(e.free)
		ix.shapes.opened(e.shape.counts[Open]+1, e.shape.counts[Open])
	}
}

// Free returns what may be granted, summed over all executors, saturating.
func (ix *Index) Free() resource.Vector {
	free := resource.Vector{}
	for name, sum := range ix.total {
		if amount := sum.saturated(); amount > 0 {
			free[name] = amount
		}
	}
	return free
}

// Capacity returns what all executors that are not LOST have.
func (ix *Index) Capacity() map[string]float64 {
	capacity := map[string]float64{}
	for _, s := range ix.shapes.byKey {
		for i, name := range s.names {
			capacity[name] += float64(s.capacity[i]) * float64(s.size-s.counts[Lost])
		}
	}
	return capacity
}

// Size is how large an index is.
type Size struct {
	// Classes and Shapes count the kinds of executors, Blocks sizes what batches are
	// matched against, and Sections counts the parts of the fleet that requests named.
	Classes, Shapes, Blocks, Sections int
}

// Size returns how large the index is.
func (ix *Index) Size() Size {
	s := Size{Classes: len(ix.classes), Shapes: len(ix.shapes.byKey), Sections: len(ix.sections.byText)}
	for _, form := range ix.forms {
		s.Blocks += len(form.open.blocks)
	}
	return s
}

// AllPools iterates over the pools with executors, in no order.
func (ix *Index) AllPools() iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		for _, pool := range ix.pools {
			if !yield(pool) {
				return
			}
		}
	}
}
