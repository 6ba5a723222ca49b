// Package rpc has the gRPC servers and clients of Berth's processes, and their errors.
//
//	fault.Error ──ToStatus──▶ google.rpc.Status ──FromStatus──▶ fault.Error
//	NewServer: health, interceptors, limits       Dial: all replicas, only the
//	                                              serving one is called
//
// An error keeps its kind, reason, fields and details across a call, however many
// processes forward it.
//
// # What an error says about the call
//
// UNAVAILABLE, DEADLINE_EXCEEDED and CANCELLED leave open whether the call took effect.
// Every call of Berth may be repeated, so callers repeat it. A call that fails with
// FAILED_PRECONDITION and reason NOT_LEADER was not applied; the gateway sends it to
// the leader, and callers never see the error. With every other code the call took no
// effect.
package rpc
