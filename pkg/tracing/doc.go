// Package tracing makes spans of what a reservation goes through, in every
// process, and sends them to a collector over OTLP.
//
//	request ──traceparent──▶ registry ──▶ record ──▶ lease ──▶ task
//	                            │           │          │        │
//	                            ▼           ▼          ▼        ▼
//	                          spans, parented by what the record says
//
// It promises:
//
//   - Off unless an endpoint is configured: then nothing is dialled, no span is
//     made, and a caller's own traceparent is still handed on and kept.
//   - All spans of a reservation have the trace id of the request that asked for
//     it. The records carry it, so a new leader goes on with it. What serves many
//     reservations at once is a trace of its own, linked with theirs.
//   - Whoever makes a span never waits: a bounded queue takes it, and what does
//     not fit is dropped and counted.
//   - Calls that no reservation asked for, such as heartbeats, are no traces.
package tracing
