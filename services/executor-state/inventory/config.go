package inventory

import "time"

// Config is what an operator may configure. Start from [DefaultConfig]: a zero is a zero,
// not a default.
type Config struct {
	// LostAfter is how long an executor may be without presence before it is LOST.
	LostAfter time.Duration
	// PresenceTTL is the time to live of the executors' etcd leases. Losses within it
	// count as one event.
	PresenceTTL time.Duration
	// HoldBackShare is the share of the executors that may lose their presence within one
	// PresenceTTL. Above it none of them becomes LOST: the network or etcd has failed, not
	// the hosts.
	HoldBackShare float64
	// HoldBackFrom is the least number of executors in a mass loss, so that one host of a
	// small fleet can become LOST.
	HoldBackFrom int
	// LostRetention is how long the record of a LOST executor is kept that no record names.
	LostRetention time.Duration
	// MaxExecutors bounds the registered executors, MaxNewExecutors the new ones within a
	// minute. A known executor may always register again.
	MaxExecutors, MaxNewExecutors int
	// MaxCatalog bounds the recorded SKUs, and separately the recorded pools.
	MaxCatalog int
	// StepLimit is how many duties of one kind a step processes before others get their
	// turn; at least 1.
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
		// The largest measured fleet has 100,000 executors; the rest is for LOST ones whose
		// records are not deleted yet. Such a fleet registers within five minutes.
		MaxExecutors:    150_000,
		MaxNewExecutors: 20_000,
		MaxCatalog:      1_000,
		StepLimit:       256,
	}
}
