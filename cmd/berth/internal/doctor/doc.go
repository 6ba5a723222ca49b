// Package doctor looks over a whole Berth: gateways, services, etcd, clocks and
// certificates, and says what is wrong and what to do about it.
//
//	Look: gateways, etcd, TLS ports ▶ Facts ── Judge ▶ Checks
//
// It promises: looking changes nothing, not even in etcd; what does not answer is
// a fact and no error; judging is a pure function of the facts, so that each
// piece of advice has a test; every check that is not OK says what to do; what
// was not looked at is said, so that a clean bill covers what it names.
package doctor
