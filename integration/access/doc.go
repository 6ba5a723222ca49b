// Package access guarantees that every method of every API on every listener admits exactly
// the roles in the table of pkg/access. The tests call real servers over real sockets.
package access
