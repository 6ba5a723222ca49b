package dispatch

import (
	"time"

	"berth.dev/pkg/model"
)

// Config holds the core's bounds. A zero field takes the value of Default.
type Config struct {
	// InFlight bounds the orders under way in all, PerExecutor those to one
	// executor. The rest wait in order.
	InFlight, PerExecutor int
	// Timeout is how long one order may take.
	Timeout time.Duration
	// BackoffBase and BackoffCap bound the pause after the n-th failure: a
	// random part of BackoffBase·2ⁿ⁻¹, at most of BackoffCap.
	BackoffBase, BackoffCap time.Duration
	// CreateWait is how long a dispatch waits for the view to reach it.
	CreateWait time.Duration
	// StopAgain is how long past its grace a worker may take to end before it
	// is told to stop again.
	StopAgain time.Duration
	// RefusalWait is how long an executor has to go on refusing this service before
	// that is taken for more than a registration that the view has yet to show.
	RefusalWait time.Duration
}

// Default is the configuration that product and tests are written for. A batch of
// 64 processes on one host starts in 2.9 s with 16 orders at a time, against 5.1 s
// with 4; 64 of them gain nothing there, and let small batches that are packed on
// one executor start side by side.
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

// The largest effect: 80 puts of at most 256 workers each stay well below the
// store's 128 operations and 1.5 MiB.
const (
	maxPuts      = 80
	maxTaskAtOne = (maxPuts - 1) * model.TaskChunkSize
)

func (c Config) orDefault() Config {
	fill(&c.InFlight, Default.InFlight)
	fill(&c.PerExecutor, Default.PerExecutor)
	fill(&c.Timeout, Default.Timeout)
	fill(&c.BackoffBase, Default.BackoffBase)
	fill(&c.BackoffCap, Default.BackoffCap)
	fill(&c.CreateWait, Default.CreateWait)
	fill(&c.StopAgain, Default.StopAgain)
	fill(&c.RefusalWait, Default.RefusalWait)
	return c
}

func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
