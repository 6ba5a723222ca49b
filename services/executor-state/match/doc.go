// Package match is the index of executors: it finds those that a batch may be given, by
// what they are and by what they have free, and explains why there are none. It knows
// no record and no lease; its owner tells it of executors and of what they hold.
//
//	class     the executors with equal SKU and attributes
//	shape     the executors with equal SKU, resources and shares set aside for roles
//	form      the shapes that have the same resources, however much of each
//	└─ field    its executors that may be given work, by what they have free
//	   └─ block   up to 256 of them, near one another, with the bounds of what they have
//	section   the classes that attributes and pools select: a bit for each class
//
// It promises:
//
//   - An executor is found exactly when it is [Open]: [Index.Place] decides it in one
//     place, and every sum and every answer follows it.
//   - The executors of a batch are those that a search of all executors, worker by
//     worker, would choose, in the same order; a refusal that stands is one that a
//     search would return again.
//   - The same calls give the same answers: there is no I/O, no clock, no randomness and
//     no map order in any decision.
//   - A search costs about the same whether executors are alike or all differ: it looks
//     at the blocks of all fields, the most promising first, and at the executors of
//     those blocks that may hold what the batch requests. An executor that changes what
//     it has free is moved in one field, whatever requests have named.
//
// Read index.go and executor.go first, then class.go and shape.go for what executors
// are, field.go for how they are found, choose.go for the order of choice with scarce.go,
// rank.go and oneshape.go, freed.go for refusals, sections.go for how long sections are
// kept, and explain.go.
package match
