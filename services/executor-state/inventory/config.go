package inventory

import "time"

// Config configures the core. Start from [DefaultConfig]: a zero value is used as zero
// and not replaced by the default.
type Config struct {
	// LostAfter is how long an executor may be without presence before it is LOST.
	LostAfter time.Duration
	// PresenceTTL is the time to live of the executors' etcd leases. Losses of presence
	// within one PresenceTTL count as one event.
	PresenceTTL time.Duration
	// HoldBackShare is the share of the executors that may lose their presence within one
	// PresenceTTL. If more lose it, none of them becomes LOST: the network or etcd has
	// failed, not the hosts.
	HoldBackShare float64
	// HoldBackFrom is the minimum number of executors in a mass loss. So a single host of a
	// small fleet can become LOST.
	HoldBackFrom int
	// LostRetention is how long the core keeps the record of a LOST executor that no lease
	// and no task names.
	LostRetention time.Duration
	// MaxExecutors bounds the registered executors, and MaxNewExecutors the executors with a
	// new ID within a minute. A known executor may always register again.
	MaxExecutors, MaxNewExecutors int
	// MaxCatalog bounds the recorded SKUs, and with the same number the recorded pools.
	MaxCatalog int
	// StepLimit is the maximum number of duties of one kind in a step, so that other kinds
	// get their turn; at least 1.
	StepLimit int
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		LostAfter:     60 * time.Second,
		PresenceTTL:   15 * time.Second,
		HoldBackShare: 0.2,
		HoldBackFrom:  3,
		LostRetention: 24 * time.Hour,
		// The largest measured fleet has 100,000 executors. The rest is for LOST executors
		// whose records are not deleted yet. At MaxNewExecutors a minute, such a fleet
		// registers within five minutes.
		MaxExecutors:    150_000,
		MaxNewExecutors: 20_000,
		MaxCatalog:      1_000,
		StepLimit:       256,
	}
}
