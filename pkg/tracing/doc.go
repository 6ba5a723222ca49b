// Package tracing records the steps of a reservation in every process as spans, and sends them to a
// collector over OTLP.
//
//	request ──traceparent──▶ registry ──▶ record ──▶ lease ──▶ task
//	                            │           │          │        │
//	                            ▼           ▼          ▼        ▼
//	                          spans, whose parent is in the record
//
// It promises:
//
//   - Tracing is off unless an endpoint is configured. Then no connection and no span is made, but the
//     traceparent of a caller is still stored and passed on.
//   - All spans of a reservation have the trace ID of the request that created it. The records contain
//     the ID, so a new leader continues the trace. Work on many reservations has a trace of its own,
//     with links to theirs.
//   - Ending a span never blocks: a bounded queue takes it. If the queue is full, the span is dropped
//     and counted.
//   - Calls that serve no reservation, such as heartbeats, start no trace.
package tracing
