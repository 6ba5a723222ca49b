// Package guard bounds what strangers can make a listener hold: connections,
// streams, and requests that have not arrived whole.
//
//	net.Listener ─ Listener ─ (TLS, sniffing) ─┬─ HTTP1 ─ HTTPServer
//	                                           └─ gRPC with ServerOptions
//
// It promises that a connection which is idle, or whose request or answer makes
// too little progress, is closed within 30 s; that all requests in flight together
// take no more memory than the Budget allows; and that a caller beyond a limit gets
// a definite answer where its protocol has one. A connection with an open stream
// that owes nothing is never idle.
//
// A Guard is for the listeners that strangers reach. Connections between Berth's
// own processes are silent for hours and carry larger messages.
package guard

import "time"

const (
	// grace is how long a request may take however small it is.
	grace = 10 * time.Second
	// patience is how long an answer may wait for its reader. A reader of events
	// that is too slow is told so before that.
	patience = 25 * time.Second
	// pace is how many bytes a second a request must arrive with, and an answer be
	// taken, in addition: 1 MiB has 26 s to arrive.
	pace = 64 << 10
	// longest is how long a request may take however large it is.
	longest = 28 * time.Second
	// idle is how long a connection may have no request and no stream. gRPC takes up
	// to 5 s more to close one in order.
	idle = 20 * time.Second
	// headerTime is how long a head of HTTP/1 may take.
	headerTime = 5 * time.Second
	// handshakeTime is how long TLS and the preface of HTTP/2 may take: longer, because
	// thousands of agents connect at once after a gateway has gone.
	handshakeTime = 20 * time.Second

	// HeaderLimit bounds the headers of a request, bytes.
	HeaderLimit = 64 << 10
)

// allowed returns how long a request may take of which so many bytes have arrived.
func allowed(bytes int64) time.Duration {
	return min(grace+time.Duration(bytes)*time.Second/pace, longest)
}
