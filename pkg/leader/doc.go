// Package leader elects at most one replica of a service for each term, so that no write
// of a deposed leader takes effect. All replicas of a service compete for one fixed key
// of the store, the leader key.
//
// The replica that creates the leader key leads. The revision that created the key is the
// term. The term rises with every change of leader, and every write compares it with the
// key: a write of an older term fails. The key is attached to an etcd lease, so etcd
// deletes the key soon after the replica stops.
//
// If a [Probe] finds that the leader's process has died, a standby deletes the key before
// the TTL, in a transaction that compares the term. This is called an evict. The verdict
// of the probe can be wrong: then the standby deletes the key of a live leader. This is
// safe, because the term fences every write of the deposed leader. It costs only a
// failover.
//
//	candidate ──creates the key──▶ leader ──resigns──▶ key deleted
//	    ▲                            │ renew deadline (2/3 TTL), key deleted,
//	    │                            ▼ etcd lease expired
//	    └───── key deleted ────── leadership over
//
// It promises:
//
//   - A replica leads only after the store has confirmed that it created the key, and
//     only with an etcd lease that the replica knows to be alive. While the store is
//     unreachable, no replica is elected.
//   - [Leadership.Done] is closed before the TTL lets another replica win, if the clocks
//     of the hosts run at the same speed. Safety does not depend on this promise, because
//     the term fences writes.
//   - A candidate never misses the end of another replica's leadership, and never waits
//     with an expired etcd lease.
//
// concurrency.Election of the etcd client promises neither the first nor the last of
// these.
package leader
