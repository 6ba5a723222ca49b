// Package rpc is how Berth's processes and clients talk to one another: errors, servers
// and clients of gRPC, made alike everywhere.
//
//	fault.Error ──ToStatus──▶ google.rpc.Status ──FromStatus──▶ fault.Error
//	NewServer: health, interceptors, limits       Dial: all replicas, only the
//	                                              serving one is called
//
// It promises that an error keeps its kind, reason, fields and details across
// a call, however many processes forward it.
//
// # What an error says about the call
//
// UNAVAILABLE, DEADLINE_EXCEEDED and CANCELLED leave open whether the call
// took effect: it was perhaps applied. Every call of Berth may be repeated, so
// that is what a caller does. FAILED_PRECONDITION with reason NOT_LEADER was
// certainly not applied; the gateway sends such a call to the leader and
// callers never see it. Every other code says that the call took no effect.
package rpc
