package model

import "time"

// PoisonKind is the kind of input that made a core panic.
type PoisonKind uint8

// The kinds of poison. Records contain these numbers.
const (
	// PoisonRequest is a request. The loop refuses a repeat of the request without passing
	// it to the core.
	PoisonRequest PoisonKind = iota + 1
	// PoisonRecord is a version of a record. The core does not receive that version.
	PoisonRecord
	// PoisonWork is a decision about a record. The core decides nothing about that record.
	PoisonWork
)

// Poison is the record of an input that made the core of a service panic. Every replica
// that runs the same version of the program quarantines this input until the poison
// record is deleted.
type Poison struct {
	Service string
	// ID is the same for every replica in which the same input causes a panic.
	ID   string
	Kind PoisonKind
	// Key is the key of the record in the store, and Mod is the mod revision of its version.
	Key string
	Mod int64
	// Request is the type of a request, Fingerprint identifies its content, and Content is
	// the content without secrets, possibly truncated.
	Request, Fingerprint, Content string
	// Panic is the message of the panic and Stack its stack, both possibly truncated.
	Panic, Stack string
	At           time.Time
	// Replica is the replica in which the panic happened first. It ran Version.
	Replica, Version string
}

// Ref implements Record.
func (p *Poison) Ref() Ref { return Ref{Kind: KindPoison, ID: p.Service + "/" + p.ID} }
