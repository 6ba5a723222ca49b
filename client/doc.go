// Package client is the Go library for job services: it reserves batches of
// executors, follows what becomes of them, and reads what operators read.
//
// It promises:
//
//   - Every call is repeated while no gateway answers, with growing pauses,
//     until the caller's context ends. A change of leader or the restart of a
//     gateway is a pause and not an error. A call with a request ID is repeated for
//     at most five minutes, since the registry does not remember the ID forever.
//   - Every call that changes something carries a request id, so that a repeat
//     has no further effect: the id of the message where it has one, a new one
//     otherwise. (What is put into the catalog needs none: the same again is
//     the same.) Give your own to repeat a call across restarts of your process.
//   - Every error is a [*fault.Error]. Kind Unavailable alone leaves open
//     whether the call took effect; it is given only once the context has ended
//     or those five minutes have passed, and wraps the context's error, or
//     [context.DeadlineExceeded]. The one exception has the reason
//     REGISTRY_NOT_READY: it is an answer, and comes at once.
//   - A stream of events resumes by itself behind the last event given:
//     nothing is missed and nothing is repeated.
//   - A Watch keeps the state of a job, from a list and the events after it. The
//     state never goes back, and goes on where events are no longer kept.
//
// A job service is a loop over [Client.Watch]: what is there, what is wanted,
// [Client.Reserve] and [Client.CancelWorkers] for the difference. The example
// of Watch is one, and examples/jobservice is a whole program.
//
// Messages are those of berth.v1, the documented contract. They are never
// changed by this package.
//
//	job service ── Client ──┬── gateway   any of them answers any call
//	                        ├── gateway
//	                        └── gateway
package client
