package dispatch

import (
	"cmp"
	"time"
)

// Config has the core's limits. A zero field takes the value of Default.
type Config struct {
	// InFlight limits the requests in flight to all agents, and PerExecutor the requests
	// in flight to one executor. Further requests are queued in order.
	InFlight, PerExecutor int
}

// Default is the configuration for production and for tests. A batch of 64 processes on one
// host starts in 2.9 s with 16 requests at a time, and in 5.1 s with 4. A limit of 64 does
// not make this batch faster, but lets small batches on one executor start side by side.
var Default = Config{InFlight: 1024, PerExecutor: 64}

func (c Config) orDefault() Config {
	return Config{InFlight: cmp.Or(c.InFlight, Default.InFlight), PerExecutor: cmp.Or(c.PerExecutor, Default.PerExecutor)}
}

const (
	// requestTimeout is the maximum duration of one request.
	requestTimeout = 5 * time.Second
	// The pause after the n-th failure is a random part of
	// min(backoffBase·2ⁿ⁻¹, backoffCap).
	backoffBase = 100 * time.Millisecond
	backoffCap  = 5 * time.Second
	// dispatchWait is how long a dispatch waits until the view reaches its records.
	dispatchWait = 5 * time.Second
	// repeatStop is how long the core waits after a worker's grace period before it
	// repeats an acknowledged stop request.
	repeatStop = 5 * time.Second
	// repeatDrop is how long the core waits before it repeats an accepted request to destroy
	// volumes. The records usually change much earlier.
	repeatDrop = 5 * time.Second
	// refusalWait is how long an executor must refuse this service before the core records
	// the refusal. A shorter refusal may have another cause: the view does not show a new
	// registration yet.
	refusalWait = time.Second

	// maxPuts bounds an effect. 80 puts of at most 256 workers each stay well below the
	// store's limits of 128 operations and 1.5 MiB.
	maxPuts = 80
)
