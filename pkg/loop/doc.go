// Package loop drives a core: it is the one shell that all three services
// share around their pure decisions.
//
//	 requests ──▶ inbox ─┐                       ┌─▶ replies, once durable
//	                     ├─▶ round: Step, commit ┼─▶ outbound calls, off the loop
//	etcd ──▶ view ───────┘   (one goroutine)     └─▶ reads, of committed state
//
// It promises:
//
//   - One goroutine owns the core. While it does not lead, the core follows the
//     view, so that a takeover loads nothing.
//   - A replica serves from when its view has reached the revision of its win
//     until its renew deadline, and never outside.
//   - What a core decides in one round becomes durable in as few fenced
//     transactions as it fits in, in order. Nothing is answered or sent before.
//   - A decision that rests on another service's stale record is not written;
//     it is taken back and decided again from what is there now.
//   - A store that is full holds nothing up: who asks for a write is told that
//     nothing was changed, and reads go on.
//   - A leader whose loop hangs gives way, although its etcd lease is renewed. A
//     replica whose core does not come back says so, leading or not (see
//     [Loop.Alive]): only the end of its process helps.
//   - What makes the core panic, and what cannot be read, is left alone by every
//     replica and told of as a finding; the rest is served. Where the core says
//     that it would be wrong without it, nothing is.
//   - When a term ends, by whatever, the core is thrown away and built again
//     from the view; whoever waits for an answer is told that the outcome is
//     unknown, and may repeat.
package loop
