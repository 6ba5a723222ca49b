// Package tracing records the steps of a reservation in every process as spans and never
// blocks the process that records them. It sends the spans to a collector over OTLP.
//
//	request ──traceparent──▶ registry ──▶ record ──▶ lease ──▶ task
//	                            │           │          │        │
//	                            ▼           ▼          ▼        ▼
//	                          spans, whose parent is in the record
//
// It promises:
//
//   - Tracing is off unless an endpoint is configured. While it is off, a process opens
//     no connection and creates no span, but still stores and passes on the traceparent
//     of a caller.
//   - All spans of a reservation have the trace ID of the request that created it. The
//     records contain this ID, so a new leader continues the trace. Work on several
//     traces has a separate trace, with links to the traces of the reservations.
//   - Ending a span never blocks: the span goes into a bounded queue. If the queue is
//     full, the span is dropped and counted.
//   - Calls that serve no reservation, such as heartbeats, start no trace.
package tracing
