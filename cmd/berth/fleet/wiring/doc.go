// Package wiring cuts any link between two processes of a fleet so that the link is silent,
// like a broken cable. No connection ends, and the data in transit arrives once the link
// works again.
//
// [Namespaces] gives each process a network namespace. A [Condition] describes a link.
package wiring
