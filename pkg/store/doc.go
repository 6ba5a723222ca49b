// Package store never reports a write as failed that may still happen, and never omits a
// change from a view. It is the part of etcd that Berth needs: fenced transactions, views
// and etcd leases.
//
//	core's effects ──▶ Committer ── one txn in flight, chained ──▶ ┌───────┐
//	                                                               │ Store │ = Etcd, or Fake
//	core's changes ◀── View ◀── a snapshot, then every change ──── └───────┘
//
// It promises:
//
//   - Every call has a deadline. A call without one gets [DefaultTimeout].
//   - An error of a write is either definite, or it wraps [ErrAmbiguous]. After a
//     definite error the write has not happened and never will. After an ambiguous error
//     the write may have happened or may still happen. [Committer] resolves the
//     ambiguity: it sends the same transaction until the chain key shows the outcome.
//   - A [View] returns a snapshot and then exactly the changes after it, in order and in
//     whole revisions. If changes are lost, for example by a compaction, the view starts
//     again with a new snapshot and sets Reset.
//   - An etcd member that accepts calls but does not answer is excluded while other
//     members answer.
//
// [Etcd] and [Fake] pass the same conformance suite, package storetest. Fake is
// deterministic, starts no goroutine and can fail at every call.
//
// Reading order: store.go defines the interface [Store], and errors.go distinguishes
// definite errors from ambiguous ones. [Committer] and pack.go write; [View] and range.go
// read. The other files implement Store: etcd*.go and members.go for etcd, fake*.go in
// memory.
package store
