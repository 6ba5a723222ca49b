// Package attack proves that hostile peers cannot make Berth break its promises or stop
// serving others. It attacks real processes with unknown callers on every listener of a
// gateway, agents that send false reports, values in etcd that no service wrote, and floods.
//
//	rogue client ──▶ public   ┐
//	rogue client ──▶ agents   ├ gateway ──▶ services ──▶ etcd ◀── rogue client
//	rogue client ──▶ internal ┘                │
//	                           lying agent ◀───┘
//
// TestAttacksWithTLS sends the same calls to a fleet with TLS, which rejects them.
//
// After each attack the tests check the same promises: no process has restarted, the
// workers of all other executors keep running, a new gang is leased and started, and the
// history in etcd has no violation. docs/explanation/security.md lists the attacks with
// the same numbers.
package attack
