// Package usage counts how much of the fleet is used and how much more is requested.
//
//	executors ──▶ ┌───────┐ ──▶ per SKU: idle, leased, running, unavailable, disabled
//	pending   ──▶ │ Tally │ ──▶ per SKU: pending executors, effective idle, wanted size
//	SKUs      ──▶ └───────┘ ──▶ what no SKU fits, why an executor is idle
//
// It promises that nothing is counted twice: an executor has one [Use], and each group
// of pending reservations maps to one SKU, or is listed as unmapped. Sums are kept up as
// executors and reservations change, so an answer costs no look at every executor.
//
// Read tally.go first, then specification.go for how demand maps to SKUs, exclude.go for
// demand that avoids executors, usage.go for the answer, scale.go for the advice.
package usage
