// Package store is what Berth needs of etcd, and nothing more: fenced
// transactions, a view that never misses a change, and etcd leases.
//
//	            Committer ── one txn in flight, chained ──▶ ┌───────┐
//	core's effects                                          │ Store │ = Etcd, or Fake
//	            View ◀── a snapshot, then every change ──── └───────┘
//
// It promises:
//
//   - A call always has a deadline; one without gets [DefaultTimeout].
//   - An error of a write is either definite, the write has not happened and
//     never will, or wraps [ErrAmbiguous]: it may have happened, or may yet.
//     [Committer] turns ambiguity into knowledge by sending the same
//     transaction until its chain key tells.
//   - A [View] gives a snapshot and then exactly the changes after it, whole
//     revisions in order. What it cannot continue it starts again, and says so.
//
// [Etcd] and [Fake] pass one conformance suite, package storetest; Fake is
// deterministic, runs in one goroutine and can fail at every call.
package store
