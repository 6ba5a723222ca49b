package model

import "time"

// PoisonKind says what made a core panic.
type PoisonKind uint8

// The kinds of poison; the numbers are those that are stored.
const (
	// PoisonRequest: the same request again is refused without a step.
	PoisonRequest PoisonKind = iota + 1
	// PoisonRecord: that version of a record is not told to the core.
	PoisonRecord
	// PoisonWork: the core decides nothing about a record.
	PoisonWork
)

// Poison is what made the core of a service panic, and is left alone since by
// every replica that runs the same version of the program, until its record is
// deleted.
type Poison struct {
	Service string
	// ID is the same for whoever meets the same poison.
	ID   string
	Kind PoisonKind
	// Key is that of the record in the store, Mod its version.
	Key string
	Mod int64
	// Request is the type of a request, Fingerprint names its content, and
	// Content is as much of it as is kept.
	Request, Fingerprint, Content string
	// Panic is what the core said, Stack where; as much as is kept.
	Panic, Stack string
	At           time.Time
	// Replica met it first, running Version.
	Replica, Version string
}

// Ref implements Record.
func (p *Poison) Ref() Ref { return Ref{Kind: KindPoison, ID: p.Service + "/" + p.ID} }
