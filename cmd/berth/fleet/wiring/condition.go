package wiring

import "time"

// Condition of a link. The zero value is a working link.
type Condition struct {
	// There cuts the direction from the side that connects to the side that listens, Back
	// the opposite one. Data and the end of a connection wait until the direction is open
	// again.
	There, Back bool
	// Delay of every piece of data.
	Delay time.Duration
	// Loss is the probability that a piece of data resets its connection instead.
	Loss float64
	// Refused refuses connections and resets the existing ones, like a firewall that
	// rejects.
	Refused bool
}
