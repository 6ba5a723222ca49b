package internal

import (
	"context"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
	"berth.dev/services/executor-state/inventory"
)

// pushEvery is how often a replica with cells looks for changed offers. A question and its
// decision wait for it once each, which is little compared with an answer.
const pushEvery = 20 * time.Millisecond

// maxPushed is how many bytes of offers a replica sends at a time. Many cells may connect at once, and
// the answers that wait for a gateway are limited.
const maxPushed = 4 << 20

// AnswerOffers implements control.v1.Agents.
func (s *Agents) AnswerOffers(ctx context.Context,
	req *controlv1.AnswerOffersRequest) (*controlv1.AnswerOffersAnswer, error) {
	if err := wire.CheckOfferAnswers(req.GetAnswers()); err != nil {
		return nil, err
	}
	request := inventory.AnswerOffers{Executor: req.GetExecutor(), Incarnation: req.GetIncarnation(),
		Nonce: req.GetNonce(), Freed: req.GetFreed()}
	for _, a := range req.GetAnswers() {
		request.Answers = append(request.Answers,
			inventory.OfferAnswer{UID: a.GetUid(), Number: a.GetNumber(), CellOffer: wire.OfferAnswerOf(a)})
	}
	if _, err := s.do(ctx, request); err != nil {
		return nil, err
	}
	return &controlv1.AnswerOffersAnswer{}, nil
}

// cells holds the sessions of the agents that are cells.
type cells struct {
	mu       sync.Mutex
	sessions map[*session]bool
}

func (c *cells) add(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sessions == nil {
		c.sessions = map[*session]bool{}
	}
	c.sessions[s] = true
}

func (c *cells) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

func (c *cells) list() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*session, 0, len(c.sessions))
	for s := range c.sessions {
		list = append(list, s)
	}
	return list
}

// offering is what a session of a cell has sent and received about offers. The mutex of the
// session guards the answers.
type offering struct {
	// core and changed identify the last list that was sent.
	core    *inventory.Core
	changed uint64
	// answers holds the answers that wait for the answers that are being forwarded.
	answers []*controlv1.OfferAnswer
	freed   bool
	running bool
	// sent has the offers in the lists that were sent on this stream, by UID; nil before the first.
	// Only PushOffers uses it.
	sent map[string]sentOffer
	// listed is set once a list was sent on this stream. revision is that of the replica's view at
	// the last look.
	listed   bool
	revision int64
}

// sentOffer is what a cell knows of an offer.
type sentOffer struct {
	number int64
	state  model.CellState
	held   bool
}

// followOffers makes the replica send the offers to the cell, until the stream ends.
func (s *session) followOffers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		s.h.cells.add(s)
	}
}

// PushOffers sends changed lists of offers to cells until ctx ends.
func (h *Heartbeats) PushOffers(ctx context.Context) error {
	tick := time.NewTicker(pushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.loop.Guard("offers", func() { h.pushOffers(ctx) })
		}
	}
}

func (h *Heartbeats) pushOffers(ctx context.Context) {
	sessions := h.cells.list()
	if len(sessions) == 0 || !h.loop.Status().Current {
		return // a list from an incomplete view would end offers
	}
	ctx, cancel := context.WithTimeout(ctx, peekTimeout)
	defer cancel()
	lists := map[*session][]inventory.OpenOffer{}
	revision := int64(0)
	err := h.peek(ctx, func(c *inventory.Core) {
		revision = c.Revision()
		for _, s := range sessions {
			changed, isCell := c.OffersChanged(s.id)
			if !isCell || s.offering.core == c && s.offering.changed == changed {
				continue
			}
			s.offering.core, s.offering.changed = c, changed
			lists[s] = c.OffersTo(s.id)
		}
	})
	if err != nil {
		return
	}
	for _, s := range sessions {
		s.mu.Lock()
		s.offering.revision = revision
		s.mu.Unlock()
	}
	left := maxPushed
	for s, list := range lists {
		if left <= 0 {
			s.offering.core = nil // the next look finds it changed
			continue
		}
		left -= s.sendOffers(list)
	}
}

// sendOffers sends what has changed in the list of offers since the last one, or the first list. It
// returns the size of the message.
func (s *session) sendOffers(list []inventory.OpenOffer) int {
	m := &controlv1.OfferList{Partial: s.offering.sent != nil}
	open := make(map[string]sentOffer, len(list))
	for _, o := range list {
		now := sentOffer{o.Number, o.State, o.Held}
		if open[o.UID] = now; s.offering.sent[o.UID] != now {
			m.Offers = append(m.Offers, offerOf(o))
		}
	}
	for uid := range s.offering.sent {
		if _, ok := open[uid]; !ok {
			m.Ended = append(m.Ended, uid)
		}
	}
	s.offering.sent = open
	s.mu.Lock()
	s.offering.listed, m.Revision = true, s.offering.revision
	s.mu.Unlock()
	s.stream.answer(&controlv1.HeartbeatAnswer{Present: true, Offers: m})
	return proto.Size(m)
}

// confirmOffers returns the part of an answer that says that the offers have not changed; nil if the
// agent is not a cell or has no list yet.
func (s *session) confirmOffers() *controlv1.OfferList {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.offering.listed {
		return nil
	}
	return &controlv1.OfferList{Unchanged: true, Revision: s.offering.revision}
}

func offerOf(o inventory.OpenOffer) *controlv1.Offer {
	m := &controlv1.Offer{Uid: o.UID, Number: o.Number, State: berthv1.CellOffer_State(o.State), Held: o.Held}
	r := o.Reservation
	if r == nil || o.State == model.CellBound {
		return m
	}
	k := r.Spec.Constraints // the others have selected the cell
	m.Constraints = &berthv1.Constraints{Resources: k.Resources, Sku: k.SKU, Role: k.Role}
	m.Key, m.Epoch, m.Workers = wire.Key(r.Key), r.Epoch, wire.Runs(r.Workers)
	m.AnswerWithin, m.HoldFor = durationpb.New(o.AnswerWithin), durationpb.New(model.DefaultHoldTimeout)
	if r.Spec.Hold {
		m.HoldFor = durationpb.New(r.Spec.HoldLimit())
	}
	if path := r.Spec.Labels[model.PathLabel]; path != "" {
		m.Path = strings.Split(path, "/")
	}
	return m
}

// takeAnswers queues the answers in a message of a cell, which are forwarded to the leader in order.
func (s *session) takeAnswers(m *controlv1.HeartbeatRequest) error {
	if len(m.GetAnswers()) == 0 && !m.GetFreed() {
		return nil
	}
	if err := wire.CheckOfferAnswers(m.GetAnswers()); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.offering.answers)+len(m.GetAnswers()) > wire.MaxOfferAnswers {
		return fault.New(fault.Exhausted, fault.ReasonOverloaded, "too many pending answers to offers: at most %d",
			wire.MaxOfferAnswers)
	}
	s.offering.answers = append(s.offering.answers, m.GetAnswers()...)
	s.offering.freed = s.offering.freed || m.GetFreed()
	if !s.offering.running {
		s.offering.running = true
		go s.guard(s.forwardAnswers)
	}
	return nil
}

// forwardAnswers forwards the pending answers until there are none. If the leader does not take
// them, it ends the stream: the agent repeats its answers at the start of the next one.
func (s *session) forwardAnswers() {
	if err := s.awaitAdmission(); err != nil {
		s.stream.end(err)
		return
	}
	for {
		s.mu.Lock()
		answers, freed := s.offering.answers, s.offering.freed
		s.offering.answers, s.offering.freed = nil, false
		if len(answers) == 0 && !freed {
			s.offering.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(s.ctx, heartbeatTimeout)
		_, err := s.h.leader.AnswerOffers(ctx, &controlv1.AnswerOffersRequest{Executor: s.id,
			Incarnation: s.incarnation, Nonce: s.nonce, Answers: answers, Freed: freed})
		cancel()
		if err != nil {
			s.stream.end(err)
			return
		}
	}
}
