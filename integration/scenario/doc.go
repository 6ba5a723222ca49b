// Package scenario proves that situations of users and operators work on real processes
// of the binary `berth`, with real sockets, real etcd and real workers, and that no
// process is left over.
//
// Every test ends with an audit of the whole history of etcd and a check for leftover
// processes. The tests wait for conditions instead of a fixed time. A timeout is a
// failure.
//
// BERTH_BINARY names the binary. If it is not set, the tests build it.
package scenario
