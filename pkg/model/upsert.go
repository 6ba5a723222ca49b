package model

// Upsert is a request to make, change or replace a reservation.
type Upsert struct {
	Key  Key
	Spec Spec
	// Workers lists the workers by index and number. Count stands for the indexes 0 to
	// Count-1, each with its next unused number. Only one of the two is set.
	Workers []WorkerID
	Count   int32
	// RequestID makes a repeat return the first result; optional.
	RequestID string
	// IfEpoch restricts the call to the live version of this epoch.
	IfEpoch int64
	// Trace is the trace of the call and of the version that it makes.
	Trace Trace
	// Fingerprint covers all fields except Trace; the registry computes it.
	Fingerprint uint64
}
