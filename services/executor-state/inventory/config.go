package inventory

import "time"

// Config is what an operator may choose. Start from [DefaultConfig]: zeroes
// mean what they say.
type Config struct {
	// LostAfter is how long an executor may be without presence before its
	// workers are given up.
	LostAfter time.Duration
	// PresenceTTL is the time to live of the executors' etcd leases, and with
	// it the window in which losses count as one event.
	PresenceTTL time.Duration
	// HoldBackShare is the share of the executors that may go within one
	// PresenceTTL: above it none of them becomes LOST, for then it is the
	// network or etcd that failed and not the hosts.
	HoldBackShare float64
	// HoldBackFrom is the least number of executors that makes a mass loss, so
	// that one host of a small fleet can be lost.
	HoldBackFrom int
	// LostRetention is how long the record of an executor that is LOST is kept
	// once nothing names it any more.
	LostRetention time.Duration
	// MaxExecutors bounds the executors that are known, MaxNewExecutors how many new
	// ones are made known within a minute. An executor that is known may always
	// register again.
	MaxExecutors, MaxNewExecutors int
	// MaxCatalog bounds the SKUs and the pools that are recorded, each for itself.
	MaxCatalog int
	// StepLimit is how many duties of one sort a step works off before it lets
	// others in; at least 1.
	StepLimit int
}

// DefaultConfig answers the defaults of product and interface.
func DefaultConfig() Config {
	return Config{
		LostAfter:     60 * time.Second,
		PresenceTTL:   15 * time.Second,
		HoldBackShare: 0.2,
		HoldBackFrom:  3,
		LostRetention: 24 * time.Hour,
		// Half as many again as the largest fleet that is measured, with those that
		// are LOST and not forgotten; such a fleet is made known in five minutes.
		MaxExecutors:    150_000,
		MaxNewExecutors: 20_000,
		MaxCatalog:      1_000,
		StepLimit:       256,
	}
}
