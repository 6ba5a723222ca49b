// Package client repeats every call until it has a definite answer or the time for the
// call is over, and misses no change of a job that it watches. It is the Go library for
// job services: it reserves gangs of workers, follows their state, and reads the same
// information as operators.
//
// It promises:
//
//   - While no gateway answers, the client repeats every call, with growing pauses, until
//     the caller's context ends. So a failover or a restart of a gateway delays a call
//     but is not an error. The client repeats a call with a request ID for at most five
//     minutes, because the registry stores the ID only for a limited time.
//   - The first pause is 25 to 50 ms. Each pause is twice as long as the one before, up to
//     1 to 2 s. The exact length is random, so that many clients do not stay
//     synchronized. [WithOnRetry] reports each error that leads to a repeat.
//   - The client does not hedge: it begins an attempt only when the attempt before it has
//     failed, and each attempt goes to one gateway. A gateway that sends nothing for four
//     seconds counts as down. Its calls fail, and the client repeats them at another
//     gateway.
//   - Every call that changes something has a request ID, so that a repeat has no further
//     effect. It is the request ID in the message, or a new ID if the message has none.
//     Calls that put a SKU or a pool need no request ID, because they are idempotent. To
//     repeat a call after a restart of your process, set the request ID yourself.
//   - Every error is a [*fault.Error]. Only after an error of kind Unavailable the call
//     may have taken effect. The client returns such an error once the context has ended
//     or the five minutes have passed. The error wraps the context's error or
//     [context.DeadlineExceeded]. There is one exception: the client returns an error
//     with reason REGISTRY_NOT_READY at once.
//   - A stream of events resumes after the last event: it misses no event and repeats
//     none.
//   - A Watch maintains the state of a job, from a list and the events after it. The
//     state never goes back. If events were deleted before the Watch received them, the
//     Watch lists the state again and continues.
//
// A job service is a loop over [Client.Watch]. It compares the state with the wanted
// state, and calls [Client.Reserve] and [Client.CancelWorkers] for the difference. The
// example of Watch is such a loop, and examples/jobservice is a whole program.
//
// Without options the connections are in plain text. [WithTLS] encrypts them, and a
// certificate in its configuration proves the role of the caller. [WithToken] proves the
// role with a bearer token instead.
//
// The messages are the messages of berth.v1, the documented API. This package never
// changes a message of the caller.
//
//	job service ── Client ──┬── gateway   any of them answers any call
//	                        ├── gateway
//	                        └── gateway
package client
