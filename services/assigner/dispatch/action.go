package dispatch

import (
	"time"

	"berth.dev/pkg/model"
)

// Nonce is the nonce of a registration. It is a secret, so that it prints as none.
type Nonce string

// String hides it.
func (Nonce) String() string { return "" }

// GoString hides it.
func (Nonce) GoString() string { return `""` }

// Submit orders an executor to start a worker. Who carries it out asks
// Core.Stands first.
type Submit struct {
	Term int64
	// Executor, Address and Incarnation are the executor's as of now.
	Executor    string
	Address     string
	Incarnation int64
	// Nonce is that of its registration: agents take no order without it.
	Nonce  Nonce
	Worker model.Worker
	UID    string
	Epoch  int64
	// Attempt counts from 1.
	Attempt int32
	Task    model.Task
	// Timeout is how long the order may take; then its outcome is Unknown.
	Timeout time.Duration
	// Fresh asks for a new connection, because the last one served badly.
	Fresh bool
	// Trace is the reservation's, for the first few workers of a task: a batch of
	// thousands is told of by its events, and not by as many calls.
	Trace model.Trace
}

// Stop orders an executor to stop a worker, and never to start it again.
type Stop struct {
	Term        int64
	Executor    string
	Address     string
	Incarnation int64
	// Nonce is that of its registration: agents take no order without it.
	Nonce  Nonce
	Worker model.Worker
	UID    string
	Epoch  int64
	// Grace is how long the worker has to end by itself.
	Grace time.Duration
	// Timeout is how long the executor has to acknowledge the order.
	Timeout time.Duration
	// Fresh asks for a new connection, because the last one served badly.
	Fresh bool
	// Trace is as that of Submit.
	Trace model.Trace
}
