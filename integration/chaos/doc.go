// Package chaos injects faults into a Berth of real processes, by a schedule from a seed,
// while clients use it, and then checks the clients' answers and the history of etcd.
//
//	seed ──Plan──▶ faults ──inject──▶ processes and the links between them
//	clients ──calls──▶ gateways ──▶ services ──▶ etcd, three members
//	   └─history──▶ porcupine                      └─every revision──▶ audit
//
// It promises that one seed gives one schedule, of faults and of the clients' calls. A run
// without violations has proven that
//
//   - the clients' answers about a reservation are linearizable: a single copy could have
//     given every answer of upsert, cancel and get, and calls of unknown outcome may have
//     happened or not (see history.go);
//   - the rules of package audit hold at every revision of etcd;
//   - the event stream of each job has every event in etcd, once and in order, whichever
//     gateways its reader used;
//   - every acknowledged version ended properly or still exists;
//   - the worker processes on the hosts match the records, and none was started twice;
//   - once the faults are over, everything comes to rest;
//   - a leader that is killed without other faults is replaced by fast failover, and
//     callers do not wait for its TTL (see failover.go);
//   - the run had enough of everything: each verb was answered, the answers were checked,
//     workers ran, streams delivered events, and faults had victims (see floor.go).
//
// Links go through proxies (package proxy), which can cut them in either direction, slow
// them, reset their connections and refuse new ones. The addresses at which standbys probe
// some of the leaders are proxies too, which can make a running leader look dead, and so
// are the addresses at which members of etcd reach each other. With namespaces each process
// has a network of its own: it can be unplugged, and routes between any two processes can
// be cut in either direction, including members of etcd. Half of the processes are behind
// proxies there as well.
package chaos
