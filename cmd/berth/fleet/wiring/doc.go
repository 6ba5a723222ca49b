// Package wiring cuts any link between two processes of a fleet, and a cut link is silent
// like a broken cable: no connection ends, and the data in transit arrives once the link
// works again.
//
// [Namespaces] gives each process a network namespace. A [Condition] describes a link.
package wiring
