package model

// Trace is the W3C traceparent of the request that asked for a reservation:
// version, trace id, span id and flags, such as
//
//	00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
//
// It stands in the records, so that whoever goes on with the reservation, a
// leader of another term too, goes on with its trace. Empty where nobody traces.
type Trace string

// ID is the trace id, 32 hexadecimal digits; empty where nobody traces.
func (t Trace) ID() string {
	if len(t) < len("00-0af7651916cd43dd8448eb211c80319c-") {
		return ""
	}
	return string(t[3:35])
}
