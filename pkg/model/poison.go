package model

import "time"

// PoisonKind is the kind of input that made a core panic.
type PoisonKind uint8

// The kinds of poison; the numbers are those that are stored.
const (
	// PoisonRequest: a repeat of the request is refused without a step.
	PoisonRequest PoisonKind = iota + 1
	// PoisonRecord: the core does not receive that version of a record.
	PoisonRecord
	// PoisonWork: the core decides nothing about a record.
	PoisonWork
)

// Poison is the record of an input that made the core of a service panic. Every replica
// that runs the same version of the program quarantines that input until the poison
// record is deleted.
type Poison struct {
	Service string
	// ID is the same for every replica that meets the same poison.
	ID   string
	Kind PoisonKind
	// Key is the key of the record in the store, Mod its version.
	Key string
	Mod int64
	// Request is the type of a request, Fingerprint identifies its content, and Content
	// is the content, possibly cut.
	Request, Fingerprint, Content string
	// Panic is the message of the panic, Stack its stack, possibly cut.
	Panic, Stack string
	At           time.Time
	// Replica is the first replica that met it, and ran Version.
	Replica, Version string
}

// Ref implements Record.
func (p *Poison) Ref() Ref { return Ref{Kind: KindPoison, ID: p.Service + "/" + p.ID} }
