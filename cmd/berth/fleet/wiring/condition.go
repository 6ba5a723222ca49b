package wiring

import "time"

// Condition is the condition of a link. The zero value is a working link.
type Condition struct {
	// There cuts the direction from the side that connects to the side that listens. Back
	// cuts the opposite direction. Data, and the end of a connection, wait until the
	// direction is open again.
	There, Back bool
	// Delay is the delay of every piece of data.
	Delay time.Duration
	// Loss is the probability that a piece of data is lost, which resets its connection.
	Loss float64
	// Refused refuses connections and resets the existing ones, like a firewall that
	// rejects.
	Refused bool
}
