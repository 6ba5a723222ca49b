// Package store is the part of etcd that Berth needs: fenced transactions, a view that
// never misses a change, and etcd leases.
//
//	core's effects ──▶ Committer ── one txn in flight, chained ──▶ ┌───────┐
//	                                                               │ Store │ = Etcd, or Fake
//	core's changes ◀── View ◀── a snapshot, then every change ──── └───────┘
//
// It promises:
//
//   - Every call has a deadline. A call without one gets [DefaultTimeout].
//   - An error of a write is either definite, or it wraps [ErrAmbiguous]. After a definite
//     error the write has not happened and never will. After an ambiguous one it may have
//     happened or may still happen. [Committer] resolves ambiguity: it sends the same
//     transaction until the chain key shows the outcome.
//   - A [View] returns a snapshot and then exactly the changes after it, in order and in
//     whole revisions. If it misses a change, it starts again with a new snapshot and
//     reports that.
//   - An etcd member that accepts calls but does not answer is excluded while others
//     answer.
//
// [Etcd] and [Fake] pass the same conformance suite, package storetest. Fake is
// deterministic, starts no goroutine and can fail at every call.
//
// Reading order: [Store] in store.go is the interface, errors.go tells definite errors
// from ambiguous ones. [Committer] writes, with pack.go, and [View] reads, with range.go.
// The other files implement Store: etcd*.go and members.go for etcd, fake*.go in memory.
package store
