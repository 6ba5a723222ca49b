// Package leader elects one replica of a service, on one fixed key of the store.
//
// Whoever creates the key leads; the revision that created it is the term, which
// rises with every change of leader and fences every write. The key is on an etcd
// lease, so that it goes when its replica does.
//
//	candidate ──creates the key──▶ leader ──resigns──▶ key deleted
//	    ▲                            │ renew deadline (2/3 TTL), key gone,
//	    │                            ▼ etcd lease gone
//	    └───── key deleted ────── over: acts no more
//
// It promises:
//
//   - A replica is told that it leads only after the store said so, on an etcd
//     lease that it knows to be alive. A store out of reach elects nobody.
//   - [Leadership.Done] closes before anybody else can win by the TTL, as far as
//     clocks can promise that. Safety does not rest on it: the term does that.
//   - A candidate never misses the end of a leader, and never waits with an etcd
//     lease that is gone.
//
// concurrency.Election of the etcd client promises neither the first nor the
// last of these.
//
// A leader whose process died is found before its TTL by a [Prover] and evicted,
// which costs availability where the proof is wrong, but never data.
package leader
