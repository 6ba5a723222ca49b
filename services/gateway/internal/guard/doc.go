// Package guard bounds the resources that unknown callers of a listener can use: connections,
// streams, and the memory of requests in flight.
//
//	net.Listener ─ Listener ─ (TLS, sniffing) ─┬─ HTTP1 ─ HTTPServer
//	                                           └─ gRPC with ServerOptions
//
// The promises in detail:
//   - A connection that is idle, or whose request or answer makes too little progress, is
//     closed within 30 s.
//   - All requests in flight together take no more memory than the Budget allows.
//   - A caller beyond a limit gets a definite answer if the caller's protocol has such an
//     answer.
//   - A connection with an open stream on which no message is due does not count as idle.
//
// A Guard is only for listeners that unknown callers can reach. Connections between Berth's
// own processes may be silent for hours and carry larger messages.
package guard

import "time"

const (
	// grace is the time that every request has to arrive, whatever its size.
	grace = 10 * time.Second
	// patience is how long an answer may wait for its reader. A stream of events with a
	// slow reader ends with an error before that time.
	patience = 25 * time.Second
	// pace is the minimum rate at which requests arrive and answers are read, in bytes per
	// second. The time for the bytes at this rate is added to grace and to patience: 1 MiB
	// has 26 s to arrive.
	pace = 64 << 10
	// longest is the maximum time that a request has to arrive, whatever its size.
	longest = 28 * time.Second
	// idle is how long a connection may have neither a request nor a stream. After that,
	// gRPC needs up to 5 s more for a graceful close.
	idle = 20 * time.Second
	// headerTime is the time that the header of an HTTP/1 request has to arrive.
	headerTime = 5 * time.Second
	// handshakeTime is the maximum time for the TLS handshake and the HTTP/2 preface. It is
	// longer than headerTime, because thousands of agents connect at once when another
	// gateway exits.
	handshakeTime = 20 * time.Second

	// HeaderLimit is the maximum size of the header of a request, in bytes.
	HeaderLimit = 64 << 10
)

// allowed returns the time that a request has to arrive, given the number of bytes that have
// arrived so far.
func allowed(bytes int64) time.Duration {
	return min(grace+time.Duration(bytes)*time.Second/pace, longest)
}
