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
	// Object is a request's type, or a key without the cluster's prefix.
	Object  string
	Since   time.Time
	Message string
	// Action states the consequence and how to end the quarantine.
	Action string
}

// quarantine is what a driver ignores.
type quarantine struct {
	guard *Guard
	// stored is the poison in the view that applies to this version of the program.
	// outdated is the poison that another version met.
	stored   map[string]*model.Poison
	outdated map[model.Ref]struct{}
	// withheld are the versions of records that the core does not receive. unreadable
	// describes those that cannot be decoded.
	withheld   map[model.Ref]int64
	unreadable []Quarantined
	list       []Quarantined
}

func newQuarantine() quarantine {
	return quarantine{stored: map[string]*model.Poison{}, outdated: map[model.Ref]struct{}{},
		withheld: map[model.Ref]int64{}}
}

// Quarantined lists what the driver ignores.
func (d *Driver[C]) Quarantined() []Quarantined { return d.quarantine.list }

// maxListed bounds the unreadable records that are listed one by one: the findings of a
// service are one message.
const maxListed = 500

// listQuarantine rebuilds the list, in which each object occurs once.
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
			Action: "They are quarantined like the listed records. They are listed once those are repaired or deleted.",
		})
	}
}

// StorePoison stores the cause of the end of the term, so that every replica quarantines
// it.
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

// tidyQuarantine has a new leader store the poison that this process met as a standby, and
// delete poison that no longer applies: what another version of the program met, and
// versions of records that do not exist any more.
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
	return nil // the next leader repeats it
}

// poison returns all poison that applies, in order of ID.
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

// readPoison takes the poison in a batch, before the records that it may be about. With
// the first batch it returns events that quarantine the subjects of decisions. Later, a
// change of these requires that the core is built again.
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

// overwritten notes that this leader replaced or deleted a record. If that record was
// quarantined, its quarantine is over.
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

// changed turns a change of a record into an event for the core: the record, or that it is
// quarantined. It returns nil if a quarantined record is replaced by one that cannot be
// read either.
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
		// The key and the term are known, but not the replica.
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

// object returns a key as findings show it.
func (d *Driver[C]) object(key string) string { return strings.TrimPrefix(key, d.space.Prefix()) }

// describe describes poison for people.
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
