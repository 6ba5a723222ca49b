// Package chaos proves with each run without violations that Berth keeps its promises
// while faults hit real processes. It derives a schedule of faults from a seed, injects
// the faults while clients use the cluster, and then checks the clients' answers and the
// history of etcd.
//
//	seed ──Plan──▶ faults ──inject──▶ processes and the links between them
//	clients ──calls──▶ gateways ──▶ services ──▶ etcd, three members
//	   └─history──▶ porcupine                      └─every revision──▶ audit
//
// The same seed always gives the same schedule of faults and of the clients' calls. A run
// without violations has proven that
//
//   - the clients' answers about a reservation are linearizable: a single copy of the
//     reservation could have given every answer of upsert, cancel and get, where a call of
//     unknown outcome may or may not have been executed (see history.go);
//   - the rules of package audit hold at every revision of etcd;
//   - the event stream of each job delivered every event in etcd once and in order,
//     whichever gateways its reader used;
//   - every acknowledged version ended properly or still exists;
//   - the worker processes on the hosts match the records, and no worker was started twice;
//   - after the faults, nothing stays in flight;
//   - fast failover replaces a leader that is killed without other faults, and callers do
//     not wait for the leader's TTL (see failover.go);
//   - the run covered enough: calls of each verb were answered, the answers were checked,
//     workers ran, were restarted and wrote to volumes, reservations expired and were bound,
//     streams delivered events, and faults had victims (see floor.go).
//
// Links go through proxies (package proxy). A proxy can cut a link in either direction,
// slow it down, reset its connections and refuse new connections. The addresses at which
// standbys probe some of the leaders are also proxies, so that a running leader can look
// dead. The members of etcd reach each other through proxies too.
//
// With namespaces, each process has its own network. A process can be unplugged, and the
// route between any two processes can be cut in either direction, including members of
// etcd. Half of the processes are behind proxies there as well.
package chaos
