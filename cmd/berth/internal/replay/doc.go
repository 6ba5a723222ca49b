// Package replay is `berth replay`: it plays a month of real batches against a real
// Berth and audits the history.
//
//	DIR/instances.csv ─▶ plan ─▶ runner ──upsert, cancel──▶ gateway
//	DIR/nodes.csv ─────▶ simulated agents ◀──start, stop──────┘
//	                     runner ◀──events── gateway      etcd ──▶ auditor
//
// The plan is pure: the requests, their order and their seconds in the trace. The
// runner keeps the order of each job, and never cancels a batch before it is
// accepted. The report counts every batch exactly once and ends with the result of
// the audit.
//
// A trace is two files. In instances.csv, the instances of one application and
// role that were created in the same second are one batch (a gang): app_name is
// the job, role the stage, the second the name. Each worker of a batch requests
// the largest cpu_request and gpu_request in it. Other resources are ignored,
// because nodes.csv does not have them. Each instance has an index of its own in
// the stage. Instances without a creation time existed before the start: they
// are batch "0". A batch is cancelled when the last of its instances is deleted;
// single workers of it are not.
package replay
