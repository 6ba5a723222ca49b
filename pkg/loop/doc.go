// Package loop drives a core: it is the shell that all three services share around
// their pure decisions.
//
//	requests ──▶ inbox ─┐                       ┌─▶ replies, once durable
//	                    ├─▶ round: Step, commit ┼─▶ outbound calls, off the loop
//	etcd ──▶ view ──────┘   (one goroutine)     └─▶ reads, of committed state
//
// It promises:
//
//   - One goroutine owns the core. On a standby the core follows the view, so a
//     failover loads nothing.
//   - A replica serves only from the moment its view reaches the revision of its win
//     until its renew deadline.
//   - The decisions of one round become durable in order, in as few fenced
//     transactions as possible. Replies and calls are sent only after that.
//   - A decision that rests on a stale record of another service is not written. The
//     core takes it back and decides again on the current records.
//   - A full store blocks nothing: writes are refused with the outcome, and reads are
//     served.
//   - A leader whose loop hangs resigns, even if its etcd lease is renewed. A replica
//     whose core does not return, leading or not, reports that in [Loop.Alive]: only a
//     restart of the process helps.
//   - Every replica quarantines whatever makes the core panic or cannot be read, and
//     reports it as a finding. The rest is served. If the core would be wrong without
//     the record, the service stops.
//   - When a term ends for any reason, the core is discarded and built again from the
//     view. Pending callers learn that the outcome is unknown and may repeat the call.
//
// Reading order: [Loop] takes requests; tenure.go is the life of one core and lead.go
// one term of it; [Driver] feeds the core, and [Driver.Round] in round.go makes its
// decisions durable. The rest are details: claims.go checks the terms in requests,
// full.go handles a full store, segment.go, event_index.go and excess.go keep job events
// within their limits, poison.go and quarantine.go handle panics.
package loop
