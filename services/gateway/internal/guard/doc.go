// Package guard bounds the resources that unknown callers of a listener can take:
// connections, streams, and the memory of incomplete requests.
//
//	net.Listener ─ Listener ─ (TLS, sniffing) ─┬─ HTTP1 ─ HTTPServer
//	                                           └─ gRPC with ServerOptions
//
// It promises the following:
//   - A connection that is idle, or whose request or answer makes too little progress, is
//     closed within 30 s.
//   - All requests in flight together take no more memory than the Budget allows.
//   - A caller beyond a limit gets a definite answer if its protocol has one.
//   - A connection with an open stream on which no message is due is never idle.
//
// A Guard is for the listeners that unknown callers reach. Connections between Berth's own
// processes are silent for hours and carry larger messages.
package guard

import "time"

const (
	// grace is how long a request of any size may take.
	grace = 10 * time.Second
	// patience is how long an answer may wait for its reader. A stream of events whose
	// reader is too slow ends with an error before that.
	patience = 25 * time.Second
	// pace is the minimum rate of requests, and of reading answers, in bytes per second. It
	// adds to the times above: 1 MiB has 26 s to arrive.
	pace = 64 << 10
	// longest is the maximum time of a request of any size.
	longest = 28 * time.Second
	// idle is how long a connection may have no request and no stream. gRPC needs up to 5 s
	// more for a graceful close.
	idle = 20 * time.Second
	// headerTime is how long the header of an HTTP/1 request may take.
	headerTime = 5 * time.Second
	// handshakeTime is how long TLS and the HTTP/2 preface may take. It is longer because
	// thousands of agents connect at once after another gateway has exited.
	handshakeTime = 20 * time.Second

	// HeaderLimit bounds the header of a request, bytes.
	HeaderLimit = 64 << 10
)

// allowed returns how long a request may take if the given number of bytes has arrived.
func allowed(bytes int64) time.Duration {
	return min(grace+time.Duration(bytes)*time.Second/pace, longest)
}
