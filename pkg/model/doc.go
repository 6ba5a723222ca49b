// Package model has Berth's terms as plain Go values: what a reservation, an executor,
// a lease and an assignment are, which states they pass through, and the interface of
// the three cores.
//
// The package has no I/O, clock, lock or wire format. A record is immutable once it is
// passed on; a change is a new copy. The package imports the standard library,
// pkg/resource, pkg/constraint and api/fault.
//
//	reservation ──granted──▶ lease ──dispatched──▶ assignment task
//	 (registry)          (executor-state)             (assigner)
//	      key = job/stage/name                  one worker on one executor
//	      uid = one version                     worker = job/stage/index/number
//	      epoch = revision that accepted it              at an epoch
package model
