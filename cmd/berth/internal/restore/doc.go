// Package restore keeps all state of etcd in a file, and makes data directories
// of etcd from such a file: `berth backup` and `berth restore`.
//
//	backup:   etcd ── snapshot with its checksum ▶ FILE
//	restore:  FILE ▶ copy ── edit: nobody leads, not ready ▶ etcd's own restore,
//	          revision raised, all before it compacted ▶ a data directory
//
// It promises of what it restores: nobody leads, so that no term of the past can
// fence a write; the registry is not ready, so that where job services have to ask
// again nothing is leased and no unknown worker stopped before they have; terms and
// epochs that are given from now on are above all that agents have ever seen, those
// of earlier restores from whatever snapshot included, as long as the clock is not
// behind that of an earlier restore; no watch goes on from the past. Every member
// that is made from one file for one moment holds the same, and members of
// different moments refuse one another. The file is not touched, and nothing is
// overwritten.
package restore
