// Package usage counts nothing twice: each executor has one [Use], and each group of
// pending reservations maps to one SKU or is unmapped. It returns how much of the fleet
// is used and how much more is requested.
//
//	executors ──▶ ┌───────┐ ──▶ per SKU: idle, leased, running, unavailable, disabled
//	pending   ──▶ │ Tally │ ──▶ per SKU: pending executors, effective idle, wanted size
//	SKUs      ──▶ └───────┘ ──▶ unmapped demand, why an executor is idle
//
// Sums are updated as executors and reservations change, so an answer does not look at
// every executor.
//
// Read tally.go first, then specification.go for how demand maps to SKUs, exclude.go for
// demand that avoids executors, usage.go for the answer, scale.go for the advice.
package usage
