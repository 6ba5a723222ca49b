// Package wiring is a network between the processes of a fleet that tests can break: a
// proxy for each link ([Links]), or a network namespace for each process ([Namespaces]).
//
// It promises that a cut link is silent, like a broken cable: no connection ends, and the
// data in transit arrives once the link works again. It does not read the data.
package wiring
