// Package match is an index of executors. It finds the executors on which the workers of
// a batch fit, and explains why there are too few. It reads no records and no leases: its
// owner enters executors and what leases use of them.
//
//	class      the executors with equal SKU and attributes
//	shape      the executors with equal SKU, resources and role shares
//	layout     the shapes with the same resource names and roles, whatever the amounts
//	└─ index     the executors of a layout, by their amounts
//	   └─ block    up to 256 executors with similar amounts, and the bounds of these
//	selection  the classes that attributes and pools select: one bit for each class
//
// It promises:
//
//   - A search finds an executor if and only if the executor is [Eligible]. [Index.Place]
//     alone decides that, and all sums and answers follow it.
//   - The executors of a batch are those that a search of all executors, worker by
//     worker, would choose, in the same order. [Index.StillRefused] confirms a refusal
//     only if a new search would refuse the batch too.
//   - Equal calls return equal answers: no decision depends on I/O, a clock, random
//     numbers or the order of a map.
//   - The cost of a search does not depend on how many distinct classes and shapes a fleet
//     has. A search looks at the bounds of all blocks, the most promising first, and at the
//     executors of the blocks whose bounds allow a fit. An executor that changes what it
//     has free moves in one index, whatever selections exist.
//
// Read index.go and executor.go first; class.go and shape.go for what executors are;
// capacity.go for how they are found; choose.go, scarce.go, rank.go and oneshape.go for the
// order of choice; refusal.go for refusals; selections.go for how long selections are kept;
// and explain.go.
package match
