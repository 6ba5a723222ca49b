package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// ExecutorKind returns the kind of an executor.
func ExecutorKind(cell bool) berthv1.Executor_Kind {
	if cell {
		return berthv1.Executor_CELL
	}
	return berthv1.Executor_HOST
}

// CellOffer converts the answer of a cell to protobuf.
func CellOffer(c model.CellOffer) *berthv1.CellOffer {
	m := &berthv1.CellOffer{State: berthv1.CellOffer_State(c.State), Reason: optional(string(c.Reason)),
		Message: optional(c.Message)}
	switch c.State {
	case model.CellAccepted, model.CellBound, model.CellReleased, model.CellWithdrawn:
		m.Rating = proto.Int32(c.Rating)
	}
	return m
}

func encodeOffer(o *model.Offer) *recordv1.Offer {
	m := &recordv1.Offer{Key: Key(o.Key), Number: o.Number, AskedAt: Timestamp(o.AskedAt),
		AnswerWithin: durationpb.New(o.AnswerWithin), DecidedAt: Timestamp(o.DecidedAt), Repeat: o.Repeat}
	for _, c := range o.Cells {
		m.Cells = append(m.Cells, &recordv1.OfferedCell{Ordinal: c.Ordinal, Offer: CellOffer(c)})
	}
	return m
}

func decodeOffer(ref model.Ref, m *recordv1.Offer) (*model.Offer, error) {
	within, err := durationOf("answerWithin", m.GetAnswerWithin())
	if err != nil {
		return nil, err
	}
	o := &model.Offer{UID: ref.ID, Key: KeyOf(m.GetKey()), Number: m.GetNumber(), AskedAt: Time(m.GetAskedAt()),
		AnswerWithin: within, DecidedAt: Time(m.GetDecidedAt()), Repeat: m.GetRepeat()}
	for _, c := range m.GetCells() {
		offer := c.GetOffer()
		o.Cells = append(o.Cells, model.CellOffer{Ordinal: c.GetOrdinal(),
			State: enum[model.CellState](offer.GetState()), Rating: offer.GetRating(),
			Reason: fault.Reason(offer.GetReason()), Message: offer.GetMessage()})
	}
	return o, nil
}

func (c *checks) offer(o *model.Offer) {
	c.within("number", o.Number, 0, maxRevision)
	c.that(!o.AskedAt.IsZero(), "askedAt: is required")
	c.within("answerWithin", int64(o.AnswerWithin), 0, math.MaxInt64)
	c.within("cells", int64(len(o.Cells)), 1, model.MaxCells)
	last := uint32(0)
	for i, cell := range o.Cells {
		c.that(cell.Ordinal > last, "cells[%d].ordinal: must be above %d, got %d", i, last, cell.Ordinal)
		c.within("cells.state", int64(cell.State), int64(model.CellPending), int64(model.CellWithdrawn))
		c.within("cells.rating", int64(cell.Rating), 0, 100)
		last = cell.Ordinal
	}
}

// MaxOfferAnswers is the maximum number of answers in a message of a cell.
const MaxOfferAnswers = 10_000

// CheckOfferAnswers returns an error if the answers of a cell are malformed.
func CheckOfferAnswers(answers []*controlv1.OfferAnswer) error {
	if len(answers) > MaxOfferAnswers {
		return fault.BadField(fault.ReasonTooLarge, "answers", "must have at most %d entries, got %d", MaxOfferAnswers,
			len(answers))
	}
	for i, a := range answers {
		if field, err := checkOfferAnswer(a); err != nil {
			return fault.BadField(fault.ReasonInvalid, fmt.Sprintf("answers[%d].%s", i, field), "%v", err)
		}
	}
	return nil
}

func checkOfferAnswer(a *controlv1.OfferAnswer) (field string, err error) {
	switch a.GetState() {
	case berthv1.CellOffer_ACCEPTED, berthv1.CellOffer_REJECTED, berthv1.CellOffer_WITHDRAWN:
	default:
		return "state", fmt.Errorf("must be ACCEPTED, REJECTED or WITHDRAWN, got %v", a.GetState())
	}
	switch {
	case !model.ValidName(a.GetUid(), maxWorkerUID):
		return "uid", errors.New("must be the UID of an offer")
	case a.GetNumber() < 0:
		return "number", fmt.Errorf("must not be negative, got %d", a.GetNumber())
	case a.GetRating() < 0 || a.GetRating() > 100:
		return "rating", fmt.Errorf("must be between 0 and 100, got %d", a.GetRating())
	case len(a.GetReason()) > model.MaxRefusal:
		return "reason", fmt.Errorf("must be at most %d bytes, got %d", model.MaxRefusal, len(a.GetReason()))
	}
	return "", nil
}

// OfferAnswerOf converts the answer of a cell from protobuf. CheckOfferAnswers must have accepted
// it. A message that is too long is cut.
func OfferAnswerOf(a *controlv1.OfferAnswer) model.CellOffer {
	message := a.GetMessage()
	if len(message) > model.MaxRefusal {
		message = strings.ToValidUTF8(message[:model.MaxRefusal], "") + "…"
	}
	return model.CellOffer{State: enum[model.CellState](a.GetState()), Rating: a.GetRating(),
		Reason: fault.Reason(a.GetReason()), Message: message}
}
