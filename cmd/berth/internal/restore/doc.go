// Package restore creates data directories of etcd from a backup in which new revisions are
// above all revisions that agents have seen, unless a clock was set back. It is
// `berth backup` and `berth restore`.
//
//	backup:   etcd ── snapshot with its checksum ▶ FILE
//	restore:  FILE ▶ copy ── edit: no leader, not ready ▶ etcd's own restore,
//	          revision raised, earlier revisions compacted ▶ a data directory
//
// It promises about the restored data:
//
//   - No service has a leader, so no replica with an earlier term can write.
//   - The registry is not ready. If it waits for job services to repeat their requests,
//     it leases nothing and stops no unknown worker before they have repeated them.
//   - New terms and epochs are above all terms and epochs that agents have seen,
//     including those after earlier restores from any snapshot. The exception is a
//     restore on a host whose clock is behind the clock of an earlier restore.
//   - No watch that began before the restore can continue.
//   - Members that are restored from the same file with the same --at have the same
//     data. Members with different files or different --at reject each other.
//
// The package does not change the backup file and overwrites no file.
package restore
