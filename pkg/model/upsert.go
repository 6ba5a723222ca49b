package model

// Upsert is a request to create, change or replace a reservation.
type Upsert struct {
	Key  Key
	Spec Spec
	// Workers lists the workers by index and number. Count requests the indexes 0 to
	// Count-1, each with its next unused number. Only one of Workers and Count is set.
	Workers []WorkerID
	Count   int32
	// RequestID, if set, makes a repeat of the call return the first result.
	RequestID string
	// IfEpoch, if set, restricts the call to the live version with this epoch.
	IfEpoch int64
	// Trace is the trace of the call and of the version that the call creates.
	Trace Trace
	// Fingerprint is a checksum of all fields except Trace and Tenants. The registry computes
	// it.
	Fingerprint uint64
	// Tenants has the tenants whose limits apply to the call. The leader sets it and never
	// stores it.
	Tenants *Tenants `json:"-"`
}
