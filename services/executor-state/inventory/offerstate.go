package inventory

import "berth.dev/pkg/model"

// OfferEvent is something that changes the state of an offer at a cell.
type OfferEvent uint8

// The events.
const (
	// OfferAsked: a cycle tries the reservation, and the cell matches.
	OfferAsked OfferEvent = iota
	// OfferAccepted, OfferRejected: the cell answers.
	OfferAccepted
	OfferRejected
	// OfferLate: the cell does not answer in time, or is not READY.
	OfferLate
	// OfferGranted: the reservation gets a lease on the cell. OfferPassed: it gets one on another
	// cell.
	OfferGranted
	OfferPassed
	// OfferWithdrawn: the cell says that it no longer keeps executors.
	OfferWithdrawn
	// OfferForgotten: the cell is draining or LOST, or has had no presence for forgetAfter, or the
	// reservation has workers in another cell.
	OfferForgotten
)

var offerEventTexts = [...]string{
	"Berth asks the cell", "the cell accepts", "the cell rejects",
	"the cell has not answered in time, or is not `READY`", "the reservation gets executors of the cell",
	"the reservation gets executors of another cell", "the cell withdraws",
	"the cell is draining or `LOST`, or has not sent a heartbeat for 30 seconds, or the reservation has workers in another cell",
}

// String returns the event as a clause.
func (e OfferEvent) String() string { return offerEventTexts[e] }

// OfferEdge is a transition of an offer at a cell. CellUnset in From means that the cell was not
// asked.
type OfferEdge struct {
	From  model.CellState
	Event OfferEvent
	To    model.CellState
}

// OfferEdges has all transitions. No other code changes the state of an offer.
var OfferEdges = []OfferEdge{
	{model.CellUnset, OfferAsked, model.CellPending},

	{model.CellPending, OfferAccepted, model.CellAccepted},
	{model.CellPending, OfferRejected, model.CellRejected},
	{model.CellPending, OfferWithdrawn, model.CellRejected},
	{model.CellPending, OfferLate, model.CellUnreachable},

	{model.CellUnreachable, OfferAccepted, model.CellReleased},

	{model.CellAccepted, OfferGranted, model.CellBound},
	{model.CellAccepted, OfferPassed, model.CellReleased},
	{model.CellAccepted, OfferRejected, model.CellWithdrawn},
	{model.CellAccepted, OfferWithdrawn, model.CellWithdrawn},
	{model.CellAccepted, OfferForgotten, model.CellWithdrawn},

	{model.CellBound, OfferRejected, model.CellWithdrawn},
	{model.CellBound, OfferWithdrawn, model.CellWithdrawn},
}

// afterEvent returns the state of an offer after an event; false if the event does not change it.
func afterEvent(state model.CellState, event OfferEvent) (model.CellState, bool) {
	for _, edge := range OfferEdges {
		if edge.From == state && edge.Event == event {
			return edge.To, true
		}
	}
	return state, false
}

// answerEvents has the events of the answers of cells.
var answerEvents = map[model.CellState]OfferEvent{
	model.CellAccepted: OfferAccepted, model.CellRejected: OfferRejected, model.CellWithdrawn: OfferWithdrawn,
}
