package model

import (
	"time"

	"berth.dev/api/fault"
)

// Kind is a kind of record.
type Kind uint8

// The kinds of records, each with the only service that writes it.
const (
	KindUnset       Kind = iota
	KindLeader           // the winner of an election; a standby may delete it
	KindChain            // the service's leader
	KindReservation      // registry
	KindStage            // registry
	KindExecutor         // executor-state
	KindLive             // executor-state; ends with its etcd lease
	KindLeaseChunk       // executor-state
	KindTaskHeader       // assigner
	KindTaskChunk        // assigner
	KindReady            // registry; a single record
	KindSKU              // executor-state
	KindPool             // executor-state
	KindDisable          // executor-state
	KindForgotten        // executor-state; a single record
	KindPoison           // each service, its own records
	KindRefusal          // assigner
	KindVolumeChunk      // executor-state
	KindOffer            // executor-state
)

// Service names.
const (
	ServiceRegistry      = "registry"
	ServiceExecutorState = "executor-state"
	ServiceAssigner      = "assigner"
	ServiceGateway       = "gateway"
)

// Services are the services that elect a leader, in the order in which they are started
// and listed.
var Services = []string{ServiceRegistry, ServiceExecutorState, ServiceAssigner}

// OtherFindings is the object of a summary finding. The summary counts the findings of
// its kind that a service does not list individually.
const OtherFindings = "findings"

// Ref identifies a record. pkg/keyspace returns the record's key in the store. Refs are
// comparable.
type Ref struct {
	Kind Kind
	// Key is set for reservations, stages and volumes. For stages and volumes it has no
	// Name.
	Key Key
	// ID is the UID of reservations, leases, offers and tasks; the ID of executors, refusals
	// and requests to disable; the name of SKUs and pools; the service of leaders and
	// chains; and service/id of poison.
	ID    string
	Chunk int32
}

// Record is a stored value. Records must not be changed; every change makes a new copy.
type Record interface {
	Ref() Ref
}

// Ref implements Record.
func (r *Reservation) Ref() Ref { return Ref{Kind: KindReservation, Key: r.Key, ID: r.UID} }

// Ref implements Record.
func (s *Stage) Ref() Ref {
	return Ref{Kind: KindStage, Key: Key{Job: s.Job, Stage: s.Stage}}
}

// Ref implements Record.
func (e *Executor) Ref() Ref { return Ref{Kind: KindExecutor, ID: e.ID} }

// Ref implements Record.
func (l *Live) Ref() Ref { return Ref{Kind: KindLive, ID: l.ID} }

// Ref implements Record.
func (l *LeaseChunk) Ref() Ref { return Ref{Kind: KindLeaseChunk, ID: l.UID, Chunk: l.Chunk} }

// Ref implements Record.
func (h *TaskHeader) Ref() Ref { return Ref{Kind: KindTaskHeader, ID: h.UID} }

// Ref implements Record.
func (c *TaskChunk) Ref() Ref { return Ref{Kind: KindTaskChunk, ID: c.UID, Chunk: c.Chunk} }

// Ref implements Record.
func (*Ready) Ref() Ref { return Ref{Kind: KindReady} }

// Ref implements Record.
func (s *SKU) Ref() Ref { return Ref{Kind: KindSKU, ID: s.Name} }

// Ref implements Record.
func (p *Pool) Ref() Ref { return Ref{Kind: KindPool, ID: p.Name} }

// Ref implements Record.
func (d *Disable) Ref() Ref { return Ref{Kind: KindDisable, ID: d.ID} }

// Ref implements Record.
func (*Forgotten) Ref() Ref { return Ref{Kind: KindForgotten} }

// Refusal is the record of an executor that refuses the requests of the assigner's
// leader: its agent answers PERMISSION_DENIED or LOWER_TERM. The executor gets no leases
// while it has this incarnation. When the incarnation ends, the assigner deletes the
// record.
type Refusal struct {
	// Executor is the ID of the executor, and Incarnation is the incarnation that refuses.
	Executor    string
	Incarnation int64
	Since       time.Time
	// Reason and Message are the reason and the message of the refusal.
	Reason  fault.Reason
	Message string
}

// Ref implements Record.
func (r *Refusal) Ref() Ref { return RefusalRef(r.Executor) }

// RefusalRef returns the Ref of an executor's refusal.
func RefusalRef(executor string) Ref { return Ref{Kind: KindRefusal, ID: executor} }

// Leader is the record of the leader of a service. The create revision of its key is the
// term.
type Leader struct {
	Service string
	// Replica is the ID of the process, and Address is the address at which it receives
	// calls.
	Replica, Address, Version string
	Since                     time.Time
}

// Ref implements Record.
func (l *Leader) Ref() Ref { return LeaderRef(l.Service) }

// LeaderRef returns the Ref of a service's leader key.
func LeaderRef(service string) Ref { return Ref{Kind: KindLeader, ID: service} }
