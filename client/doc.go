// Package client is the Go library for job services. It reserves gangs of workers,
// follows their state, and reads what operators read.
//
// The package promises:
//
//   - Every call is repeated while no gateway answers, with growing pauses,
//     until the caller's context ends. A failover or the restart of a gateway
//     is a pause and not an error. A call with a request ID is repeated for at
//     most five minutes, since the registry does not keep the ID forever.
//   - Every call that changes something carries a request ID, so that a repeat
//     has no further effect: the ID of the message, or else a new one. Calls
//     that put into the catalog need none, since they are idempotent. To repeat
//     a call across restarts of your process, set the request ID yourself.
//   - Every error is a [*fault.Error]. Only kind Unavailable leaves open whether
//     the call took effect. The client returns it once the context has ended or
//     those five minutes have passed. It wraps the context's error, or
//     [context.DeadlineExceeded]. The one exception has the reason
//     REGISTRY_NOT_READY: the client returns it at once.
//   - A stream of events resumes behind the last event: it misses no event and
//     repeats none.
//   - A Watch maintains the state of a job, from a list and the events after it.
//     The state never goes back, and the Watch continues even if events are no
//     longer kept.
//
// A job service is a loop over [Client.Watch]. It compares the state with the wanted
// state, and calls [Client.Reserve] and [Client.CancelWorkers] for the difference. The
// example of Watch is such a loop, and examples/jobservice is a whole program.
//
// The messages are those of berth.v1, the documented API. This package never changes
// messages of the caller.
//
//	job service ── Client ──┬── gateway   any of them answers any call
//	                        ├── gateway
//	                        └── gateway
package client
