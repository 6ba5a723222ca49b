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
	// Timeout is how long one request may take.
	Timeout time.Duration
	// BackoffBase and BackoffCap limit the pause after the n-th failure, a random part
	// of min(BackoffBase·2ⁿ⁻¹, BackoffCap).
	BackoffBase, BackoffCap time.Duration
	// CreateWait is how long a dispatch waits for the view to reach it.
	CreateWait time.Duration
	// StopAgain is how long past its grace period a worker may take to end before its
	// stop is requested again.
	StopAgain time.Duration
	// RefusalWait is how long an executor has to refuse this service before that is
	// recorded. Until then the view may only be late with its new registration.
	RefusalWait time.Duration
}

// Default is the configuration for production and for tests. A batch of 64 processes on
// one host starts in 2.9 s with 16 requests at a time, and in 5.1 s with 4. A limit of 64
// does not improve that, but lets small batches on one executor start side by side.
var Default = Config{
	InFlight:    1024,
	PerExecutor: 64,
	Timeout:     5 * time.Second,
	BackoffBase: 100 * time.Millisecond,
	BackoffCap:  5 * time.Second,
	CreateWait:  5 * time.Second,
	StopAgain:   5 * time.Second,
	RefusalWait: time.Second,
}

// maxPuts bounds an effect. 80 puts of at most 256 workers each stay well below the
// store's limits of 128 operations and 1.5 MiB.
const maxPuts = 80

func (c Config) orDefault() Config {
	return Config{
		InFlight:    cmp.Or(c.InFlight, Default.InFlight),
		PerExecutor: cmp.Or(c.PerExecutor, Default.PerExecutor),
		Timeout:     cmp.Or(c.Timeout, Default.Timeout),
		BackoffBase: cmp.Or(c.BackoffBase, Default.BackoffBase),
		BackoffCap:  cmp.Or(c.BackoffCap, Default.BackoffCap),
		CreateWait:  cmp.Or(c.CreateWait, Default.CreateWait),
		StopAgain:   cmp.Or(c.StopAgain, Default.StopAgain),
		RefusalWait: cmp.Or(c.RefusalWait, Default.RefusalWait),
	}
}
