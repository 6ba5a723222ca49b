// Package attack tests real processes against hostile peers: rogue clients on every
// listener of a gateway, agents that lie, values in etcd that no service wrote, and
// floods.
//
//	rogue client ──▶ public   ┐
//	rogue client ──▶ agents   ├ gateway ──▶ services ──▶ etcd ◀── rogue client
//	rogue client ──▶ internal ┘                │
//	                           lying agent ◀───┘
//
// After each attack the same promises hold: no process has restarted, the workers of
// every other executor keep running, a new gang is leased and started, and the history in
// etcd keeps every invariant. docs/explanation/security.md lists the attacks by the same numbers.
package attack
