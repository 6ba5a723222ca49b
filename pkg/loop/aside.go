package loop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/pkg/wire"
)

// Aside is something that a replica leaves alone.
type Aside struct {
	// Object is a request's type, or a key without the cluster's prefix.
	Object  string
	Since   time.Time
	Message string
	// Action says what comes of it, and how it is ended.
	Action string
}

// aside is what a driver leaves alone.
type aside struct {
	guard *Guard
	// stored is the poison in the view that counts for this version of the
	// program, others what another version met.
	stored map[string]*model.Poison
	others map[model.Ref]struct{}
	// versions are those that made the core panic, by key.
	versions map[string]int64
	// withheld are the versions of which the core is told Held instead, unreadable
	// what is said of those of them that no poison tells of.
	withheld   map[model.Ref]int64
	unreadable []Aside
	// hidden counts the unreadable that are not shown.
	hidden int
	list   []Aside
}

// maxShown is how many unreadable records are shown one by one: what a service has to
// say of itself is one message.
const maxShown = 500

// show makes the list: each object once, as the first that tells of it does.
func (a *aside) show(poison []Aside) {
	a.list = nil
	told := map[string]bool{}
	for _, one := range slices.Concat(a.unreadable, poison) {
		if !told[one.Object] {
			told[one.Object] = true
			a.list = append(a.list, one)
		}
	}
	if a.hidden > 0 {
		a.list = append(a.list, Aside{
			Object: "records", Since: a.unreadable[0].Since, Message: fmt.Sprintf("%d more records cannot be read", a.hidden),
			Action: "They are left alone like those that are named. They are shown once those are put right or deleted.",
		})
	}
}

// unread notes a record that cannot be read.
func (a *aside) unread(one Aside) {
	if len(a.unreadable) < maxShown {
		a.unreadable = append(a.unreadable, one)
	} else {
		a.hidden++
	}
}

func newAside() aside {
	return aside{stored: map[string]*model.Poison{}, others: map[model.Ref]struct{}{}, withheld: map[model.Ref]int64{}}
}

// Aside is what is left alone.
func (d *Driver[C]) Aside() []Aside { return d.aside.list }

// Keep stores what is to blame for the end of the term, so that no replica
// meets it again.
func (d *Driver[C]) Keep(ctx context.Context, p *model.Poison) error {
	return d.commitAside(ctx, []*model.Poison{p}, nil)
}

func (d *Driver[C]) commitAside(ctx context.Context, puts []*model.Poison, deletes []model.Ref) error {
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
	if len(writes) == 0 {
		return nil
	}
	_, err := d.Log.Commit(ctx, writes)
	if errors.Is(err, store.ErrFenced) {
		return ErrFenced
	}
	return err
}

// tidyAside has a new leader store what this process met as a standby, and
// delete what no longer counts: what another version of the program met, and
// versions of records that are no more.
func (d *Driver[C]) tidyAside(ctx context.Context) error {
	a := &d.aside
	if a.guard == nil {
		return nil
	}
	deletes := slices.SortedFunc(maps.Keys(a.others), func(x, y model.Ref) int { return strings.Compare(x.ID, y.ID) })
	clear(a.others)
	over := func(p *model.Poison) bool {
		ref, ok := d.space.Parse(p.Key)
		return p.Kind == model.PoisonRecord && (!ok || a.withheld[ref] != p.Mod)
	}
	maps.DeleteFunc(a.guard.Met, func(_ string, p *model.Poison) bool { return over(p) })
	for _, p := range sorted(a.stored) {
		if over(p) {
			deletes = append(deletes, p.Ref())
			delete(a.stored, p.ID)
		}
	}
	if err := d.commitAside(ctx, sorted(a.guard.Met), deletes); !isFull(err) {
		return err
	}
	return nil // the next leader has it to do as well
}

// known is all the poison that counts.
func (a *aside) known() []*model.Poison {
	if a.guard == nil || len(a.stored)+len(a.guard.Met) == 0 {
		return nil
	}
	return append(sorted(a.stored), sorted(a.guard.Met)...)
}

func sorted(poison map[string]*model.Poison) []*model.Poison {
	list := make([]*model.Poison, 0, len(poison))
	for _, id := range slices.Sorted(maps.Keys(poison)) {
		list = append(list, poison[id])
	}
	return list
}

// notice takes the changes of poison in a batch, before the records that they
// may be about. A core is told of it with the first batch alone; later, it has
// to be built afresh.
func (d *Driver[C]) notice(b store.Batch, first bool) (events []model.Event, err error) {
	a := &d.aside
	prefix, moved := d.space.Key(model.Ref{Kind: model.KindPoison, ID: d.service + "/"}), first
	for _, c := range b.Changes {
		if !strings.HasPrefix(c.Key, prefix) {
			continue
		}
		moved = true
		ref, _ := d.space.Parse(c.Key)
		id := c.Key[len(prefix):]
		delete(a.others, ref)
		was := a.stored[id]
		delete(a.stored, id)
		if c.Deleted {
			if was != nil && was.Kind != model.PoisonRequest {
				return nil, ErrAfresh
			}
			continue
		}
		record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
		p, _ := record.(*model.Poison)
		if err != nil || a.guard == nil || p.Version != a.guard.Version {
			a.others[ref] = struct{}{}
			continue
		}
		a.stored[id] = p
		met := a.guard.Met[id] != nil
		delete(a.guard.Met, id)
		if !first && !met && was == nil && p.Kind != model.PoisonRequest {
			return nil, ErrAfresh
		}
	}
	if !moved {
		return nil, nil
	}
	a.versions = map[string]int64{}
	for _, p := range a.known() {
		ref, ok := d.space.Parse(p.Key)
		switch {
		case p.Kind == model.PoisonRecord:
			a.versions[p.Key] = p.Mod
		case p.Kind == model.PoisonWork && ok && first:
			events = append(events, model.Held{Ref: ref})
		}
	}
	d.showAside()
	return events, nil
}

// showAside makes the list of what is left alone.
func (d *Driver[C]) showAside() {
	var poison []Aside
	for _, p := range d.aside.known() {
		poison = append(poison, d.shown(p))
	}
	d.aside.show(poison)
}

// overwritten notes a commit of this leader: what it left alone of that key is there
// no more.
func (d *Driver[C]) overwritten(ref model.Ref, key string) {
	if _, there := d.aside.withheld[ref]; !there {
		return
	}
	delete(d.aside.withheld, ref)
	object := d.object(key)
	d.aside.unreadable = slices.DeleteFunc(d.aside.unreadable, func(a Aside) bool { return a.Object == object })
	d.showAside()
}

// changed turns a change into what the core is told: the record, or that it is
// to leave it alone. It is nothing where one that cannot be read takes the place of
// another that is left alone.
func (d *Driver[C]) changed(ref model.Ref, c store.Change, first bool) (model.Event, error) {
	_, withheld := d.aside.withheld[ref]
	event := model.Changed{Ref: ref, Create: c.Create, Mod: c.Mod}
	if c.Deleted && withheld {
		return nil, ErrAfresh
	}
	if c.Deleted {
		return event, nil
	}
	record, err := wire.Decode(ref, c.Value, c.Create, c.Mod, c.Lease)
	event.Record = record
	switch {
	case withheld && err != nil:
		d.aside.withheld[ref] = c.Mod
		return nil, nil
	case withheld:
		return nil, ErrAfresh
	case err == nil && d.aside.versions[c.Key] != c.Mod:
		return event, nil
	case err != nil && ref.Kind == model.KindLeader:
		// Who leads cannot be read. That somebody does, and the term, are there.
		event.Record = &model.Leader{Service: ref.ID}
		return event, nil
	case !first:
		return nil, ErrAfresh
	}
	if holder, holds := any(d.Core).(model.Holder); !holds || !holder.CanMiss(ref) {
		return nil, fmt.Errorf("loop: the service would be wrong without %s, which cannot be told: %w", c.Key, err)
	}
	d.aside.withheld[ref] = c.Mod
	if err != nil {
		d.aside.unread(Aside{
			Object: d.object(c.Key), Since: d.now(), Message: "cannot be read: " + clip(err.Error(), maxPanic),
			Action: "It is left alone, and nothing that it may hold is given out. It ends when the record is put right or deleted.",
		})
	}
	return model.Held{Ref: ref}, nil
}

// object is a key as people are shown it.
func (d *Driver[C]) object(key string) string { return strings.TrimPrefix(key, d.space.Prefix()) }

// shown is what is said of poison.
func (d *Driver[C]) shown(p *model.Poison) Aside {
	a := Aside{Object: d.object(p.Key), Since: p.At}
	message, action := "", ""
	switch p.Kind {
	case model.PoisonRequest:
		a.Object = p.Request
		message, action = "the request", "The same request again is refused."
	case model.PoisonRecord:
		message, action = "this version of the record", "It is left alone until it changes, and nothing that it may hold is given out."
	default:
		message, action = "a decision about it", "It is left alone, and nothing that it may hold is given out."
	}
	a.Message = fmt.Sprintf("%s made the %s panic: %s", message, p.Service, p.Panic)
	a.Action = action + " Another version of Berth tries again, and so does this one once the key " + d.space.Key(p.Ref()) + " is deleted; it tells more."
	return a
}
