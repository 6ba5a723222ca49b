package agent

import (
	"maps"
	"slices"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// Cell answers the offers to a cell, with Agent.AnswerOffers. It is usually also the Driver. It
// is safe for concurrent use.
type Cell interface {
	// Offered receives the complete list of offers, at most one for each UID: an offer that the
	// list lacks has ended. The agent calls Offered for each answer to a heartbeat, also if the
	// list has not changed, because each answer confirms the offers. Offered must return at
	// once and must not change the list. The agent calls it for one answer at a time.
	Offered(offers []*controlv1.Offer)
}

// CellGangs is an optional interface of a Cell. If a cell implements it, the agent follows the members of
// the gangs that have a worker in the cell.
type CellGangs interface {
	// GangChanged receives the members of the gang of a reservation whenever they change. With more
	// than maxGang workers it receives their number once, and no member. GangChanged must return at
	// once. The agent calls it for one list of a gang at a time.
	GangChanged(key model.Key, members *model.Members)
}

// Placed reports the host on which a worker of a cell runs. The members of its gang then have this host.
func (a *Agent) Placed(worker model.Worker, epoch int64, host string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ledger.placed(identity{worker, epoch}, host) {
		a.notify()
	}
}

const (
	// maxAnswers is the maximum number of answers in one message, and maxAnswerText the maximum
	// size of each of their texts in bytes, so that a message is much smaller than 1 MiB.
	maxAnswers, maxAnswerText = 1000, 256
)

// offers has the offers to a cell, and its answers. Agent.mu guards it.
type offers struct {
	// stream has the open offers according to the lists of the stream, by UID. listed is set once
	// the stream has a complete list, and changed while list lacks the last one.
	stream          map[string]*controlv1.Offer
	listed, changed bool
	// list has the open offers according to the latest revision, which was revision, and byUID
	// has them by UID. A stream to another replica may begin with an older list.
	list     []*controlv1.Offer
	byUID    map[string]*controlv1.Offer
	revision int64
	// every is the time between heartbeats of the stream.
	every time.Duration
	// answers has the last answer to each offer, by UID.
	answers map[string]*offerAnswer
	// freed is set if the next heartbeat must report that capacity became free.
	freed bool
}

// offerAnswer is an answer to an offer.
type offerAnswer struct {
	*controlv1.OfferAnswer
	// due is set if a heartbeat must have the answer. sent is the time of the last one that had
	// it.
	due  bool
	sent time.Time
}

// AnswerOffers sends answers of a cell to offers. Agent repeats the last answer to each offer
// as long as the offer is in the list: once at the start of each heartbeat stream, and while
// the list shows the offer as PENDING. It drops an answer to an offer that the list lacks.
func (a *Agent) AnswerOffers(answers ...*controlv1.OfferAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range answers {
		if a.offers.byUID[one.GetUid()] == nil {
			continue
		}
		sent := &controlv1.OfferAnswer{Uid: one.GetUid(), Number: one.GetNumber(), State: one.GetState(),
			Rating: one.GetRating(), Reason: clip(one.GetReason(), maxAnswerText),
			Message: clip(one.GetMessage(), maxAnswerText)}
		a.offers.answers[one.GetUid()] = &offerAnswer{OfferAnswer: sent, due: true}
	}
	a.notify()
}

// Freed reports that capacity became free in a cell after it rejected an offer.
func (a *Agent) Freed() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offers.freed = true
	a.notify()
}

// registered forgets the revision of the lists. A replica that lists offers to this registration has
// seen it, and so everything that an earlier stream has shown. After etcd was restored from a backup,
// the revisions are lower.
func (o *offers) registered() { o.revision = 0 }

// beginOffers begins a stream. Its first message has all answers.
func (a *Agent) beginOffers(every time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.offers.listed, a.offers.every = false, every
	for _, one := range a.offers.answers {
		one.due = true
	}
}

// addAnswers adds the answers that are due to a heartbeat, up to maxAnswers. a.mu must be
// locked.
func (a *Agent) addAnswers(req *controlv1.HeartbeatRequest) {
	req.Freed, a.offers.freed = a.offers.freed, false
	now := time.Now()
	for _, one := range a.offers.answers {
		switch {
		case !one.due:
		case len(req.Answers) == maxAnswers:
			a.notify()
			return
		default:
			one.due, one.sent = false, now
			req.Answers = append(req.Answers, one.OfferAnswer)
		}
	}
}

// offered processes the list of offers in an answer to a heartbeat, without trusting it.
func (a *Agent) offered(list *controlv1.OfferList) {
	a.mu.Lock()
	switch {
	case !a.offers.listed && (list.GetUnchanged() || list.GetPartial()):
		a.mu.Unlock()
		a.log.Warn("a change of the list of offers is ignored: the stream has no list yet")
		return
	case !list.GetUnchanged() && !a.listOffers(list):
		a.mu.Unlock()
		return
	case list.GetRevision() < a.offers.revision:
		a.mu.Unlock()
		return // the replica will show what the agent has seen already
	}
	a.offers.revision = list.GetRevision()
	a.showOffers()
	a.repeatAnswers()
	offers := a.offers.list
	a.mu.Unlock()
	a.cfg.Cell.Offered(offers)
}

// listOffers applies a list to those of the stream. It reports whether the list is valid. It leaves
// out the offers that are not. a.mu must be locked.
func (a *Agent) listOffers(list *controlv1.OfferList) bool {
	o := &a.offers
	before := map[string]*controlv1.Offer{}
	if list.GetPartial() {
		before = o.stream
	}
	open := maps.Clone(before)
	for _, uid := range list.GetEnded() {
		delete(open, uid)
	}
	for _, one := range list.GetOffers() {
		if err := checkOffer(one); err != nil {
			a.log.Warn("an offer is ignored", "uid", clip(one.GetUid(), maxAnswerText), "error", err)
			delete(open, one.GetUid())
			continue
		}
		open[one.GetUid()] = one
	}
	if n := len(open); n > model.MaxOffers {
		a.log.Error("the list of offers is ignored: it is too long", "offers", n, "max", model.MaxOffers)
		o.listed = false
		return false
	}
	o.listed, o.stream, o.changed = true, open, true
	return true
}

// showOffers makes the offers of the stream those of the latest revision, and drops the answers to
// the offers that have ended. a.mu must be locked.
func (a *Agent) showOffers() {
	o := &a.offers
	if !o.changed {
		return
	}
	o.changed, o.byUID, o.list = false, o.stream, make([]*controlv1.Offer, 0, len(o.stream))
	for _, uid := range slices.Sorted(maps.Keys(o.byUID)) {
		o.list = append(o.list, o.byUID[uid])
	}
	maps.DeleteFunc(o.answers, func(uid string, _ *offerAnswer) bool { return o.byUID[uid] == nil })
}

// repeatAnswers makes the answers due to offers that are still PENDING: the answer may have
// been lost. It repeats an answer at most once in each heartbeat interval. a.mu must be locked.
func (a *Agent) repeatAnswers() {
	now, repeats := time.Now(), false
	for uid, one := range a.offers.answers {
		offer := a.offers.byUID[uid]
		if !one.due && offer.GetState() == berthv1.CellOffer_PENDING && offer.GetNumber() == one.GetNumber() &&
			now.Sub(one.sent) >= a.offers.every {
			one.due, repeats = true, true
		}
	}
	if repeats {
		a.notify()
	}
}

// checkOffer checks an offer. A driver may use its texts as names, and its workers without
// further checks.
func checkOffer(o *controlv1.Offer) error {
	key, pending := o.GetKey(), o.GetState() == berthv1.CellOffer_PENDING || o.GetState() == berthv1.CellOffer_ACCEPTED
	field := func(name, format string, args ...any) error {
		return fault.BadField(fault.ReasonInvalid, name, format, args...)
	}
	named := func(names ...string) bool {
		for _, name := range names {
			if !model.ValidName(name, 128) {
				return false
			}
		}
		return true
	}
	switch {
	case !named(o.GetUid()):
		return field("uid", "%.140q is not a UID", o.GetUid())
	case o.GetNumber() <= 0:
		return field("number", "must be positive, got %d", o.GetNumber())
	case !pending:
		return nil // the other fields are not set
	case !named(key.GetJob(), key.GetStage(), key.GetName()):
		return field("key", "%.140q, %.140q or %.140q is not a name", key.GetJob(), key.GetStage(), key.GetName())
	case o.GetEpoch() <= 0:
		return field("epoch", "must be positive, got %d", o.GetEpoch())
	case len(o.GetPath()) > model.MaxPath:
		return field("path", "must have at most %d cells, got %d", model.MaxPath, len(o.GetPath()))
	case o.GetAnswerWithin().AsDuration() < 0 || o.GetHoldFor().AsDuration() < 0:
		return field("answer_within", "neither it nor hold_for may be negative, got %v and %v",
			o.GetAnswerWithin().AsDuration(), o.GetHoldFor().AsDuration())
	case len(o.GetWorkers()) == 0:
		return field("workers", "must not be empty")
	}
	for _, cell := range o.GetPath() {
		if !model.ValidName(cell, 253) {
			return field("path", "%.260q is not the ID of a cell", cell)
		}
	}
	if err := wire.WorkerSet(o.GetWorkers()).Check(model.MaxWorkers); err != nil {
		return field("workers", "%v", err)
	}
	return nil
}
