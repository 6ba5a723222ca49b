// Package doctor checks a whole cluster: gateways, services, etcd, clocks and certificates. It
// reports problems and suggests fixes.
//
//	Collect: gateways, etcd, TLS listeners ▶ Facts ── Evaluate ▶ Checks
//
// It promises the following:
//   - Collect changes nothing, not even in etcd.
//   - A process that does not answer is a fact and not an error.
//   - Evaluate is a pure function of the facts, so that each suggestion has a test.
//   - Every check that is not OK suggests a fix, and skipped checks are listed.
package doctor
