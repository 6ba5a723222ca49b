// Package replay plays a trace of real batches against a Berth cluster, counts the
// outcome of every batch exactly once, and audits the history. It is `berth replay`.
//
//	DIR/instances.csv ─▶ plan ─▶ runner ──upsert, cancel──▶ gateway
//	DIR/nodes.csv ─────▶ simulated agents ◀──start, stop──────┘
//	                     runner ◀──events── gateway      etcd ──▶ auditor
//
// The plan depends only on the trace. It has the requests, their order and the second of
// each request in the trace. The runner keeps the order of the requests of each job, and
// never cancels a batch before Berth has accepted the batch. The report ends with the
// result of the audit.
//
// A trace consists of two files. In instances.csv, the instances of one application and
// role that were created in the same second form one batch (a gang): app_name is the job,
// role is the stage, and the second is the name. Each worker of a batch requests the
// largest cpu_request and the largest gpu_request of the batch. The plan ignores other
// resources, because nodes.csv does not have them. Each instance has its own worker index
// in the stage. Instances without a creation time existed before the trace began and form
// batch "0". The runner cancels a batch when the last of its instances is deleted. It does
// not cancel single workers.
package replay
