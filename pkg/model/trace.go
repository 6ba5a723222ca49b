package model

// Trace is the W3C traceparent of a reservation's request: version, trace ID, span ID
// and flags, such as
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//
// Records contain the traceparent, so that every service that processes the reservation
// continues its trace, also after a failover. The traceparent is empty without tracing.
type Trace string

// ID returns the trace ID of 32 hexadecimal digits. It returns "" without tracing.
func (t Trace) ID() string {
	if len(t) < len("00-0af7651916cd43dd8448eb211c80319c-") {
		return ""
	}
	return string(t[3:35])
}
