// Package doctor checks a whole cluster without changing anything, and suggests a fix for
// every check that is not OK. It checks gateways, services, etcd, clocks and
// certificates.
//
//	Collect: gateways, etcd, TLS listeners ▶ Facts ── Evaluate ▶ Checks
//
// It promises the following:
//   - Collect changes nothing, not even in etcd.
//   - A process that does not answer is a fact and not an error.
//   - Evaluate is a pure function of the facts, so that each suggestion has a test.
//   - The list of checks also contains the skipped checks.
package doctor
