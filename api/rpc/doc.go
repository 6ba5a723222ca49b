// Package rpc passes an error between processes without losing its kind, reason, fields
// and details, and calls only replicas that serve. It provides the gRPC servers and
// clients of all Berth processes.
//
//	fault.Error ──ToStatus──▶ google.rpc.Status ──FromStatus──▶ fault.Error
//	NewServer: health, interceptors, limits       Dial: all replicas, only the
//	                                              serving one is called
//
// An error stays the same even if several processes forward it.
//
// # What an error says about the call
//
// After UNAVAILABLE, DEADLINE_EXCEEDED or CANCELLED the call may have taken effect.
// Callers repeat the call, because every call of Berth may be repeated. After any other
// code the call took no effect. If a call returns FAILED_PRECONDITION with reason
// NOT_LEADER, the gateway sends the call to the leader, so clients never see this error.
package rpc
