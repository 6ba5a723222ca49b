// Package restore writes the data of etcd to a file and creates data directories of
// etcd from such a file: `berth backup` and `berth restore`.
//
//	backup:   etcd ── snapshot with its checksum ▶ FILE
//	restore:  FILE ▶ copy ── edit: no leader, not ready ▶ etcd's own restore,
//	          revision raised, all before it compacted ▶ a data directory
//
// It promises about the restored data:
//
//   - No service has a leader, so that no earlier term can fence a write.
//   - The registry is not ready. Where it waits for job services to repeat their
//     requests, it leases nothing and stops no unknown worker before that.
//   - New terms and epochs are above all that agents have seen, including those of
//     earlier restores from any snapshot, unless the clock is behind that of an
//     earlier restore.
//   - No watch continues from before the restore.
//   - Members that are made from one file with one --at have the same data. Members
//     with different ones reject each other.
//
// The file does not change, and no file is overwritten.
package restore
