// Package replay is `berth replay`: a month of real batches, played against a
// real Berth, and a proof that it kept its promises.
//
//	DIR/instances.csv ─▶ plan ─▶ runner ──upsert, cancel──▶ gateway
//	DIR/nodes.csv ─────▶ simulated agents ◀──orders───────────┘
//	                     runner ◀──events── gateway      etcd ──▶ auditor
//
// The plan is pure: what is asked for, in which order, at which second of the
// trace. The runner keeps the order of each job, and never cancels a batch
// before it was accepted. The report counts every batch exactly once, and ends
// with what the auditor found in etcd.
//
// A trace is two files. In instances.csv, the instances of one application and
// role that were created in the same second are one strict batch: app_name is
// the job, role the stage, the second the name. Each worker of a batch asks for
// the largest cpu_request and gpu_request in it; the other resources are left
// out, because nodes.csv has no more. Each instance has an index of its own in
// the stage. Instances without a creation time were there before the start:
// they are batch "0". A batch is cancelled as a whole when the last of its
// instances is deleted: single workers of it are not.
package replay
