package loop

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// Quarantined is a record, request or decision that a replica ignores.
type Quarantined struct {
	// Object is the type of a request, or the key of a record without the cluster's prefix.
	Object  string
	Since   time.Time
	Message string
	// Action says what the consequence is and how an operator can end the quarantine.
	Action string
}

// quarantine is the state of a driver about quarantined records, requests and decisions.
type quarantine struct {
	guard *Guard
	// stored has the poison in the view that applies to this version of the program.
	// outdated has the poison that another version found.
	stored   map[string]*model.Poison
	outdated map[model.Ref]struct{}
	// withheld has the records that the core does not receive, with their mod revisions.
	// unreadable describes the withheld records that cannot be decoded.
	withheld   map[model.Ref]int64
	unreadable []Quarantined
	list       []Quarantined
}

func newQuarantine() quarantine {
	return quarantine{stored: map[string]*model.Poison{}, outdated: map[model.Ref]struct{}{},
		withheld: map[model.Ref]int64{}}
}

// Quarantined returns the list of quarantined records, requests and decisions.
func (d *Driver[C]) Quarantined() []Quarantined { return d.quarantine.list }

// maxListed is the maximum number of unreadable records that are listed individually,
// because one message contains all findings of a service.
const maxListed = 500

// listQuarantine rebuilds the list of quarantined objects. Each object occurs once in the
// list.
func (d *Driver[C]) listQuarantine() {
	q := &d.quarantine
	list := slices.Clone(q.unreadable[:min(len(q.unreadable), maxListed)])
	for _, p := range q.poison() {
		list = append(list, d.describe(p))
	}
	q.list = nil
	listed := map[string]bool{}
	for _, one := range list {
		if !listed[one.Object] {
			listed[one.Object] = true
			q.list = append(q.list, one)
		}
	}
	if more := len(q.unreadable) - maxListed; more > 0 {
		q.list = append(q.list, Quarantined{
			Object: "records", Since: q.unreadable[0].Since, Message: fmt.Sprintf("%d more records cannot be read", more),
			Action: "These records are quarantined like the listed ones. To see them, repair or delete the listed records.",
		})
	}
}

// StorePoison stores the cause of a panic, so that every replica quarantines the cause.
func (d *Driver[C]) StorePoison(ctx context.Context, p *model.Poison) error {
	return d.commitPoison(ctx, []*model.Poison{p}, nil)
}

func (d *Driver[C]) commitPoison(ctx context.Context, puts []*model.Poison, deletes []model.Ref) error {
	var writes []store.Write
	for _, p := range puts {
		value, err := wire.Encode(p)
		if err != nil {
			return err
		}
		writes = append(writes, store.Write{Ops: []store.Op{store.Put(d.space.Key(p.Ref()), value)}})
	}
	for _, ref := range deletes {
		writes = append(writes, store.Write{Ops: []store.Op{store.Delete(d.space.Key(ref))}})
	}
	_, err := d.Log.Commit(ctx, writes)
	return err
}

// tidyQuarantine updates the stored poison at the start of a term. It stores the poison
// that this process found as a standby. It deletes poison that another version of the
// program found, and poison about a version of a record that does not exist any more.
func (d *Driver[C]) tidyQuarantine(ctx context.Context) error {
	q := &d.quarantine
	if q.guard == nil {
		return nil
	}
	deletes := slices.SortedFunc(maps.Keys(q.outdated), func(x, y model.Ref) int { return strings.Compare(x.ID, y.ID) })
	clear(q.outdated)
	obsolete := func(p *model.Poison) bool {
		ref, ok := d.space.Parse(p.Key)
		return p.Kind == model.PoisonRecord && (!ok || q.withheld[ref] != p.Mod)
	}
	maps.DeleteFunc(q.guard.Unstored, func(_ string, p *model.Poison) bool { return obsolete(p) })
	for _, p := range sorted(q.stored) {
		if obsolete(p) {
			deletes = append(deletes, p.Ref())
			delete(q.stored, p.ID)
		}
	}
	if err := d.commitPoison(ctx, sorted(q.guard.Unstored), deletes); !isFull(err) {
		return err
	}
	return nil // the next leader retries
}

// poison returns all poison that applies to this process.
func (q *quarantine) poison() []*model.Poison {
	if q.guard == nil {
		return nil
	}
	return append(sorted(q.stored), sorted(q.guard.Unstored)...)
}

func sorted(poison map[string]*model.Poison) []*model.Poison {
	var list []*model.Poison
	for _, id := range slices.Sorted(maps.Keys(poison)) {
		list = append(list, poison[id])
	}
	return list
}

// poisoned reports whether that version of a record made the core panic.
func (q *quarantine) poisoned(key string, mod int64) bool {
	if q.guard == nil {
		return false
	}
	for _, poison := range []map[string]*model.Poison{q.stored, q.guard.Unstored} {
		for _, p := range poison {
			if p.Kind == model.PoisonRecord && p.Key == key && p.Mod == mod {
				return true
			}
		}
	}
	return false
}

// readPoison reads the poison in a batch. It must be called before the core receives the
// records of the batch. For the first batch it returns the events that quarantine the
// records whose decisions made the core panic. If a later batch changes the poison about
// a record or a decision, it returns ErrQuarantineChanged, and the loop builds a new
// core.
func (d *Driver[C]) readPoison(b store.Batch, first bool) (events []model.Event, err error) {
	q := &d.quarantine
	prefix, moved := d.space.Key(model.Ref{Kind: model.KindPoison, ID: d.service + "/"}), false
	for _, c := range b.Changes {
		if !strings.HasPrefix(c.Key, prefix) {
			continue
		}
		moved = true
		ref, _ := d.space.Parse(c.Key)
		id := c.Key[len(prefix):]
		delete(q.outdated, ref)
		was := q.stored[id]
		delete(q.stored, id)
		if c.Deleted {
			if was != nil && was.Kind != model.PoisonRequest {
				return nil, ErrQuarantineChanged
			}
			continue
		}
		record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
		p, _ := record.(*model.Poison)
		if err != nil || q.guard == nil || p.Version != q.guard.Version {
			q.outdated[ref] = struct{}{}
			continue
		}
		q.stored[id] = p
		known := was != nil || q.guard.Unstored[id] != nil
		delete(q.guard.Unstored, id)
		if !first && !known && p.Kind != model.PoisonRequest {
			return nil, ErrQuarantineChanged
		}
	}
	if moved {
		d.listQuarantine()
	}
	if !first {
		return nil, nil
	}
	for _, p := range q.poison() {
		if ref, ok := d.space.Parse(p.Key); ok && p.Kind == model.PoisonWork {
			events = append(events, model.Quarantined{Ref: ref})
		}
	}
	return events, nil
}

// overwritten records that this leader replaced or deleted a record. If the record was
// quarantined, this ends the quarantine.
func (d *Driver[C]) overwritten(ref model.Ref, key string) {
	q := &d.quarantine
	if _, found := q.withheld[ref]; !found {
		return
	}
	delete(q.withheld, ref)
	object := d.object(key)
	q.unreadable = slices.DeleteFunc(q.unreadable, func(a Quarantined) bool { return a.Object == object })
	d.listQuarantine()
}

// changed returns the event for a change of a record. It decides what happens with a
// record that cannot be decoded or that made the core panic:
//
//   - Of a leader key, the core receives the service and the term without the replica.
//   - In the first batch, the core receives Quarantined instead of the record. If the core
//     cannot miss the record, changed returns an error, and this replica cannot lead.
//   - In a later batch, changed returns ErrQuarantineChanged, and the loop builds a new
//     core, for which the record is in the first batch.
//   - If the record is withheld already, the core receives nothing.
//
// If a withheld record is deleted or becomes readable, changed returns
// ErrQuarantineChanged.
func (d *Driver[C]) changed(ref model.Ref, c store.Change, first bool) (model.Event, error) {
	q := &d.quarantine
	_, withheld := q.withheld[ref]
	event := model.Changed{Ref: ref, Create: c.Create, Mod: c.Mod}
	if c.Deleted && withheld {
		return nil, ErrQuarantineChanged
	}
	if c.Deleted {
		return event, nil
	}
	record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
	event.Record = record
	switch {
	case withheld && err != nil:
		q.withheld[ref] = c.Mod
		return nil, nil
	case withheld:
		return nil, ErrQuarantineChanged
	case err == nil && !q.poisoned(c.Key, c.Mod):
		return event, nil
	case err != nil && ref.Kind == model.KindLeader:
		// Only the replica is unknown; the key contains the service and the term.
		event.Record = &model.Leader{Service: ref.ID}
		return event, nil
	case !first:
		return nil, ErrQuarantineChanged
	}
	if holder, ok := any(d.Core).(model.QuarantineCore); !ok || !holder.CanMiss(ref) {
		return nil, fmt.Errorf("loop: the service needs the record %s, which cannot be used: %w", c.Key, err)
	}
	q.withheld[ref] = c.Mod
	if err != nil {
		q.unreadable = append(q.unreadable, Quarantined{
			Object: d.object(c.Key), Since: d.now(), Message: "cannot be read: " + clip(err.Error(), maxPanic),
			Action: "The record is quarantined, and the capacity that it may use stays reserved. To end this, repair or delete the record.",
		})
	}
	return model.Quarantined{Ref: ref}, nil
}

// object returns a key without the cluster's prefix, as findings show it.
func (d *Driver[C]) object(key string) string { return strings.TrimPrefix(key, d.space.Prefix()) }

// describe returns a description of poison for people.
func (d *Driver[C]) describe(p *model.Poison) Quarantined {
	one := Quarantined{Object: d.object(p.Key), Since: p.At}
	message, action := "", ""
	switch p.Kind {
	case model.PoisonRequest:
		one.Object = p.Request
		message, action = "the request", "The same request is refused."
	case model.PoisonRecord:
		message, action = "this version of the record",
			"The record is quarantined until it changes, and the capacity that it may use stays reserved."
	default:
		message, action = "a decision about it", "The record is quarantined, and the capacity that it may use stays reserved."
	}
	one.Message = fmt.Sprintf("%s made the %s panic: %s", message, p.Service, p.Panic)
	one.Action = action + " Another version of Berth retries. To have this version retry, delete the key " +
		d.space.Key(p.Ref()) + ", which contains the stack."
	return one
}
