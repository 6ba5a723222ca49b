package model

import (
	"slices"
	"time"

	"berth.dev/api/fault"
)

// CellState is the state of an offer at one cell. The numbers are equal to the numbers in the
// API.
type CellState uint8

// The states of an offer at a cell.
const (
	CellUnset CellState = iota
	// CellPending: the cell was asked and has not answered.
	CellPending
	// CellAccepted: the cell keeps executors for the reservation.
	CellAccepted
	// CellRejected: the cell has no executors for the reservation.
	CellRejected
	// CellUnreachable: the cell did not answer in time.
	CellUnreachable
	// CellBound: the reservation has executors of this cell.
	CellBound
	// CellReleased: the cell accepted, and the reservation does not need it.
	CellReleased
	// CellWithdrawn: the cell accepted, and no longer keeps the executors.
	CellWithdrawn
)

var cellStateNames = [...]string{"", "PENDING", "ACCEPTED", "REJECTED", "UNREACHABLE", "BOUND", "RELEASED", "WITHDRAWN"}

func (s CellState) String() string { return cellStateNames[s] }

// Limits of offers. Configuration cannot change them.
const (
	// MaxCells is the maximum number of cells that are asked about a reservation.
	MaxCells = 64
	// MaxOffers is the maximum number of open offers to a cell. A cell with more is not asked.
	MaxOffers = 10_000
	// MaxCellRuns is the maximum number of ranges of workers in a reservation for cells.
	MaxCellRuns = 1000
	// MaxPath is the maximum number of cells through which a reservation may come.
	MaxPath = 8
	// AnswerWithin is how long executor-state waits for the answers of cells.
	AnswerWithin = 10 * time.Second
	// AskAgainAfter is how long executor-state waits before it asks cells again that all
	// refused, unless one of them reports that capacity became free.
	AskAgainAfter = 10 * time.Second
	// MaxRefusal is the maximum length of the message of a cell in bytes.
	MaxRefusal = 256
)

// PathLabel is the label that has the IDs of the cells through which a reservation came,
// separated by slashes. The agent of a cell sets it.
const PathLabel = "berth.dev/cell-path"

// GangLabel is the label of a reservation whose gang is that of a reservation of the parent. The agent
// of the cell sets it, and the members of the gang.
const GangLabel = "berth.dev/cell-gang"

// Offer is the record of what cells answered that were asked whether they can run a
// reservation. It exists until the version ends, or until the cells are asked again.
type Offer struct {
	UID string
	Key Key
	// Number rises each time the cells are asked about the reservation.
	Number  int64
	AskedAt time.Time
	// AnswerWithin is how long after AskedAt a cell may answer.
	AnswerWithin time.Duration
	// DecidedAt is the time at which every cell had answered or was late; zero before.
	DecidedAt time.Time
	// Repeat is set if capacity became free in a cell after all of them refused.
	Repeat bool
	// Cells has the cells that were asked, in order of ordinal.
	Cells []CellOffer
}

// CellOffer is the answer of one cell.
type CellOffer struct {
	Ordinal uint32
	State   CellState
	// Rating is the share of the scarcest requested resource that is left in the cell, on all
	// executors that match, in percent. It is 0 before the cell has accepted.
	Rating int32
	// Reason and Message say why the cell does not run the reservation.
	Reason  fault.Reason
	Message string
}

// Ref implements Record.
func (o *Offer) Ref() Ref { return OfferRef(o.UID) }

// OfferRef returns the Ref of the offer of a reservation.
func OfferRef(uid string) Ref { return Ref{Kind: KindOffer, ID: uid} }

// At returns the answer of the cell with an ordinal; nil if it was not asked.
func (o *Offer) At(ordinal uint32) *CellOffer {
	if o == nil {
		return nil
	}
	at := slices.IndexFunc(o.Cells, func(c CellOffer) bool { return c.Ordinal == ordinal })
	if at < 0 {
		return nil
	}
	return &o.Cells[at]
}

// Has reports whether the offer is in a state at some cell; false for nil.
func (o *Offer) Has(state CellState) bool {
	return o != nil && slices.ContainsFunc(o.Cells, func(c CellOffer) bool { return c.State == state })
}

// IsDecided reports whether every cell has answered or was late; false for nil.
func (o *Offer) IsDecided() bool { return o != nil && !o.DecidedAt.IsZero() }

// Edit returns a copy of the offer whose cells may be changed.
func (o *Offer) Edit() *Offer {
	next := *o
	next.Cells = slices.Clone(o.Cells)
	return &next
}
