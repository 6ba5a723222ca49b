// Package model gives all services one definition of Berth's terms, as plain Go values
// that nothing changes after they are passed on. It defines reservations, executors,
// leases and assignments, the states through which they pass, and the interface of the
// three cores.
//
// The package has no I/O, clock, lock or wire format. A record must not be changed once
// it is passed on; every change makes a new copy. The package imports the standard
// library, pkg/resource, pkg/constraint and api/fault.
//
//	reservation ──granted──▶ lease ──dispatched──▶ assignment task
//	 (registry)          (executor-state)             (assigner)
//	      key = job/stage/name                  one worker on one executor
//	      uid = one version                     worker = job/stage/index/number
//	      epoch = revision that accepted it              at an epoch
package model
