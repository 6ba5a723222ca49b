// Package match finds an executor for a batch if and only if the executor may be given
// work, and chooses the executors that a search of the whole fleet would choose. It is an
// index of executors, and it explains why too few of them fit. It reads no records and no
// leases: its owner enters executors and what leases use of them.
//
//	class      the executors with equal SKU and attributes
//	shape      the executors with equal SKU, resources and role shares
//	layout     the shapes with the same resource names and roles, whatever the amounts
//	└─ index     the executors of a layout, ordered by their amounts
//	   └─ block    up to 256 executors with similar amounts, and their bounds
//	selection  the classes that attributes and pools select: one bit for each class
//
// It promises:
//
//   - A search finds an executor if and only if the executor is [Eligible]. [Index.Place]
//     and [Index.Close] derive the eligibility, in one function: from the reason that the
//     owner gives, then from closed classes, then from leases that use more than the
//     capacity. All sums and answers follow it.
//   - The executors of a batch are those that a search of all executors, worker by
//     worker, would choose, in the same order. [Index.StillRefused] confirms a refusal
//     only if a new search would refuse the batch too.
//   - Equal calls return equal answers: no decision depends on I/O, a clock, random
//     numbers or the order of a map.
//   - The cost of a search does not depend on how many distinct classes and shapes a
//     fleet has. A search looks at the bounds of all blocks, the most promising first,
//     and at the executors of the blocks whose bounds allow a fit. When the free capacity
//     of an executor changes, the executor moves in one index, whatever selections exist.
//
// Read index.go and executor.go first. Then read class.go and shape.go for what executors
// are, capacity.go for how they are found, and choose.go, scarce.go, rank.go and
// oneshape.go for the order of choice. pinned.go is about workers that have their executors
// before a search. Last come refusal.go for refusals, selections.go for how long selections
// are kept, and explain.go.
package match
