package dispatch

import (
	"cmp"
	"time"
)

// Config has the core's limits. A zero field takes the value of Default.
type Config struct {
	// InFlight limits the requests to agents in flight, PerExecutor those to one
	// executor. The others are queued in order.
	InFlight, PerExecutor int
}

// Default is the configuration for production and for tests. A batch of 64 processes on
// one host starts in 2.9 s with 16 requests at a time, and in 5.1 s with 4. A limit of 64
// does not improve that, but lets small batches on one executor start side by side.
var Default = Config{InFlight: 1024, PerExecutor: 64}

func (c Config) orDefault() Config {
	return Config{InFlight: cmp.Or(c.InFlight, Default.InFlight), PerExecutor: cmp.Or(c.PerExecutor, Default.PerExecutor)}
}

const (
	// requestTimeout is how long one request may take.
	requestTimeout = 5 * time.Second
	// The pause after the n-th failure is a random part of
	// min(backoffBase·2ⁿ⁻¹, backoffCap).
	backoffBase = 100 * time.Millisecond
	backoffCap  = 5 * time.Second
	// dispatchWait is how long a dispatch waits for the view to reach it.
	dispatchWait = 5 * time.Second
	// repeatStop is how long past its grace period a worker may take to end before its
	// stop is requested again.
	repeatStop = 5 * time.Second
	// refusalWait is how long an executor has to refuse this service before that is
	// recorded. Until then the view may only be late with its new registration.
	refusalWait = time.Second

	// maxPuts bounds an effect. 80 puts of at most 256 workers each stay well below the
	// store's limits of 128 operations and 1.5 MiB.
	maxPuts = 80
)
