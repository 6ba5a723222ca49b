// Package scenario proves that the situations of users and operators work on real
// processes. The processes run the binary `berth`, with real sockets, real etcd and real
// workers.
//
// Every test ends with an audit of the whole history of etcd and a check for leftover
// processes. The tests wait for conditions instead of a fixed time. A timeout is a
// failure.
//
// BERTH_BINARY names the binary. If it is not set, the tests build it.
package scenario
