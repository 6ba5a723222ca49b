package model

// Upsert is a request to make a reservation, or to change or replace the one of the
// same key.
type Upsert struct {
	Key  Key
	Spec Spec
	// Workers names each worker index; Count stands for the indexes 0 to Count-1, each
	// with its next unused number. One of the two is given.
	Workers []WorkerID
	Count   int32
	// RequestID makes a repeat return the first result; optional.
	RequestID string
	// IfEpoch lets the call act only on the living version of this epoch.
	IfEpoch int64
	// Trace is the call's, and becomes that of the version it makes.
	Trace Trace
	// Fingerprint is of all but Trace; the registry computes it.
	Fingerprint uint64
}
