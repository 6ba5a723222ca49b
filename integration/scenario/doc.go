// Package scenario runs the situations of users and operators on real processes of the
// binary `berth`, with real sockets, real etcd and real workers.
//
// Every test ends with an audit of the whole history of etcd and a check for leftover
// processes. The tests wait for conditions; a timeout is a failure.
//
// BERTH_BINARY names the binary. If it is not set, the tests build it.
package scenario
