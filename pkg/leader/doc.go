// Package leader elects one replica of a service, on one fixed key of the store.
//
// The replica that creates the key leads. The revision that created the key is the term,
// which rises with every change of leader and fences every write. The key is attached to
// an etcd lease, so it is deleted soon after its replica stops.
//
//	candidate ──creates the key──▶ leader ──resigns──▶ key deleted
//	    ▲                            │ renew deadline (2/3 TTL), key deleted,
//	    │                            ▼ etcd lease expired
//	    └───── key deleted ────── leadership over
//
// It promises:
//
//   - A replica leads only after the store has confirmed it, on an etcd lease that the
//     replica knows to be alive. While the store is unreachable, no replica is elected.
//   - [Leadership.Done] closes before another replica can win because of the TTL, as far
//     as clocks allow. Safety does not depend on it: the term fences writes.
//   - A candidate never misses the end of a leadership, and never waits with an expired
//     etcd lease.
//
// concurrency.Election of the etcd client promises neither the first nor the last.
//
// If a [Probe] finds that the leader's process has died, a standby deletes the key before
// the TTL, in a transaction that compares the term. This is called an evict. A wrong probe
// costs availability, but never data.
package leader
