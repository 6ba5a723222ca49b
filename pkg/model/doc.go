// Package model is Berth's vocabulary as plain Go values: what a reservation,
// an executor, a lease and an assignment are, which states they pass through,
// and the shape that the three cores share.
//
// It promises: values only. There is no I/O, no clock, no lock and no wire
// format here; a record is immutable once it is handed on, a change is a new
// copy. The package imports the standard library, pkg/resource,
// pkg/constraint and api/fault.
//
//	reservation ──granted──▶ lease ──dispatched──▶ assignment task
//	 (registry)          (executor-state)             (assigner)
//	      key = job/stage/name                  one worker on one executor
//	      uid = one version                     worker = job/stage/index/number
//	      epoch = revision that accepted it              at an epoch
package model
