// Package loop sends the reply to a request only after the decision behind the reply is
// durable in the term of this leader. All three services use the package: it is the shell
// around the pure decisions of their cores.
//
//	requests ──▶ inbox ─┐                       ┌─▶ replies, once durable
//	                    ├─▶ round: Step, commit ┼─▶ outbound calls, off the loop
//	etcd ──▶ view ──────┘   (one goroutine)     └─▶ reads, of committed state
//
// It promises:
//
//   - One goroutine owns the core. On a standby the core follows the view, so a new
//     leader need not load the records.
//   - A replica serves only from the moment its view reaches the revision of its win
//     until its renew deadline.
//   - The decisions of one round become durable in order, in as few fenced
//     transactions as possible. Replies and calls are sent only after that.
//   - A decision that is based on a stale record of another service is not written. The
//     core undoes the decision and decides again on the current records.
//   - A full store blocks no caller: the loop refuses writes with an error that states
//     the outcome, and serves reads.
//   - A leader whose loop hangs resigns, even if its etcd lease is renewed. If the core
//     does not return, the replica reports that in [Loop.Alive], as a leader and as a
//     standby: only a restart of the process helps.
//   - Every replica quarantines each record that cannot be decoded and each record or
//     request that makes the core panic, and reports it as a finding. It serves
//     everything else. If the core would be wrong without the record, the service does
//     not serve.
//   - When a term ends for any reason, the loop discards the core and builds a new one
//     from the view. Pending callers learn that the outcome is unknown; they may repeat
//     the call.
//
// Reading order: [Loop] receives requests. tenure.go contains the life of one core, and
// lead.go one term of the core. [Driver] passes events to the core, and [Driver.Round] in
// round.go makes the decisions of the core durable. The other files contain details.
// claims.go checks the terms in requests, and full.go handles a full store. segment.go,
// event_index.go and excess.go keep job events within their limits. poison.go attributes
// a panic of the core to a record or a request (Driver.blame). quarantine.go withholds
// records from the core: Driver.changed decides what happens with a record that cannot be
// decoded.
package loop
