// Package scenario plays what users and operators live through on the real
// thing: processes of the binary `berth`, real sockets, real etcd, real workers.
//
// Every test ends with the audit of all that etcd ever held, from its first
// revision on, and with a look for processes that were left behind. The tests
// wait for what they wait for, and a time-out is a failure.
//
// BERTH_BINARY names the binary; it is built when that is not set.
package scenario
