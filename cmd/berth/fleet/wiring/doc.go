// Package wiring gives each process of a fleet a network namespace, so that every link
// between two of them can be cut ([Namespaces]), and describes the [Condition] of a link.
//
// It promises that a cut link is silent, like a broken cable: no connection ends, and the
// data in transit arrives once the link works again.
package wiring
