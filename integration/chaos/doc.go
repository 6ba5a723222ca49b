// Package chaos breaks a whole Berth of real processes, by a schedule made from a
// seed, while clients use it, and then judges what they saw and what etcd held.
//
//	seed ──Plan──▶ faults ──inject──▶ processes and the links between them
//	clients ──calls──▶ gateways ──▶ services ──▶ etcd, three members
//	   └─history──▶ porcupine                      └─every revision──▶ audit
//
// It promises: the same seed makes the same schedule, of faults and of what each
// client means to ask; and a run that reports no violation has shown that
//
//   - what clients were told of a reservation is linearizable: every answer of
//     upsert, cancel and get is one that a single copy could have given, with
//     calls of unknown outcome taken either way (see history.go);
//   - the rules of package audit hold at every revision of etcd;
//   - the event stream of each job has every event that etcd holds, once and in
//     order, whatever gateways its reader went through;
//   - every version that was acknowledged ended well or still stands;
//   - the worker processes on the hosts are those of the records, and none was
//     started twice;
//   - once the faults are over, everything comes to rest;
//   - a leader that is killed while nothing else is broken is replaced by proof, and
//     callers do not wait for its TTL (see takeover.go);
//   - enough came about to show that: each verb was answered, what was answered was
//     judged, workers ran, streams gave events, faults found victims (see floor.go).
//
// Every link that a process was told about goes through a proxy of package wiring,
// which can cut it in either direction, slow it, break its connections and refuse
// them. So does the address at which some of the leaders are proven dead, which lets
// one that lives look dead; and that at which a member of etcd is reached by the
// others, which makes it mute. With namespaces each process is a host of its own, a
// cable can be pulled and routes lead nowhere, either way, between members of etcd
// too; half of the others are behind proxies as well.
package chaos
