package cell

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

// The gang of a worker is that of the parent: other workers may wait in the parent, or have ended there.
//
//	parent ── members of the gang ──▶ Driver ── SetMembers ──▶ child ──▶ agents of the hosts
//	       ◀── host of each worker ──        ◀── own members ──
//
// The members that the child gets name the workers of this cell as the child does: with their numbers and
// executors in the child.
const (
	// giveAgain is how often the driver makes sure that the leader of the child knows the members.
	giveAgain = 5 * time.Second
	// placesWait is how long a call waits for a change of the child's own members, and maxPlaces is how
	// many calls may wait at a time: they share a connection with the others.
	placesWait, maxPlaces = 2 * time.Second, 200
)

// place is where a worker runs.
type place struct{ executor, host string }

// GangChanged implements agent.CellGangs.
func (d *Driver) GangChanged(key model.Key, members *model.Members) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gangs[key] = members
	others := false
	for _, h := range d.holds {
		if h.version != nil && h.origin.gang() == key {
			h.notify()
			others = true
		}
	}
	if !others {
		delete(d.gangs, key)
	}
}

// gang returns the key of the reservation of the parent.
func (o origin) gang() model.Key { return model.Key{Job: o.Job, Stage: o.Stage, Name: o.Name} }

// isOfStage reports whether the workers of the hold are of the same stage of the parent. d.mu must be locked.
func (h *hold) isOfStage(o origin) bool { return h.origin.Job == o.Job && h.origin.Stage == o.Stage }

// gangMembers returns the members of the parent's gang as the child gets them; nil if they are not known.
// A worker of this cell whose place is not known yet is no member, and waits.
func (h *hold) gangMembers() *model.Members {
	d := h.driver
	d.mu.Lock()
	defer d.mu.Unlock()
	members := d.gangs[h.origin.gang()]
	if members == nil || h.version == nil || h.version.GetLabels()[model.GangLabel] == "" {
		return nil
	}
	if members.Workers > wire.MaxGang {
		return model.NewMembers(members.Workers, nil, model.Unplaced{})
	}
	// A parent that is a cell itself has several reservations for one gang, so all of the stage count.
	own := map[model.WorkerID]*hold{}
	for _, one := range d.holds {
		if one.version != nil && one.isOfStage(h.origin) {
			for id := range one.origin.workers.All() {
				own[id] = one
			}
		}
	}
	unplaced := members.Unplaced
	var waiting []int32
	for _, r := range unplaced.Waiting {
		for index := r.First; index <= r.Last && len(waiting) <= wire.MaxGang; index++ {
			waiting = append(waiting, index)
		}
	}
	list := make([]model.Member, 0, len(members.List))
	for _, m := range members.List {
		if of := own[m.ID]; of != nil {
			at, known := of.places[m.ID.Index]
			if !known {
				waiting = append(waiting, m.ID.Index)
				continue
			}
			m.ID.Number, m.Executor, m.Host = of.numbers[m.ID.Index], at.executor, at.host
		}
		list = append(list, m)
	}
	slices.Sort(waiting)
	unplaced.Waiting = nil
	for _, index := range slices.Compact(waiting) {
		unplaced.Waiting = unplaced.Waiting.With(index)
	}
	return model.NewMembers(members.Workers, list, unplaced)
}

// giveMembers gives the child the members of the parent's gang if it has not got them, and makes sure from
// time to time that its leader knows them. It returns the pause before it must be called again.
func (h *hold) giveMembers() time.Duration {
	members := h.gangMembers()
	if members == nil {
		return forever
	}
	if next := h.givenAt.Add(giveAgain); h.given == members.Cursor && time.Now().Before(next) {
		return time.Until(next)
	}
	request := &berthv1.SetMembersRequest{Job: h.key.Job, Stage: h.key.Stage, Name: h.key.Name, Version: members.Cursor}
	known, err := false, error(nil)
	if h.given == members.Cursor {
		known, err = h.setMembers(request)
	}
	if err == nil && !known {
		request.Workers = int32(members.Workers)
		for _, m := range members.List {
			request.Members = append(request.Members, &berthv1.Member{Index: m.ID.Index, Number: m.ID.Number,
				Executor: m.Executor, Host: m.Host})
		}
		request.Waiting, request.Ended = wire.IndexRanges(members.Waiting), wire.IndexRanges(members.Ended)
		request.GaveUp = wire.IndexRanges(members.GaveUp)
		_, err = h.setMembers(request)
	}
	if err != nil {
		h.log.Debug("the child has not got the members of the gang yet", "reservation", h.key, "error", err)
		return retryAfter
	}
	h.given, h.givenAt = members.Cursor, time.Now()
	return giveAgain
}

func (h *hold) setMembers(request *berthv1.SetMembersRequest) (known bool, err error) {
	ctx, cancel := h.driver.call()
	defer cancel()
	return h.driver.cfg.Child.SetMembers(ctx, request)
}

// followPlaces reports to the parent on which hosts the workers run, and looks for the others in the
// background.
func (h *hold) followPlaces() {
	d := h.driver
	d.mu.Lock()
	placed := map[*worker]string{}
	missing := false
	for index, w := range h.workers {
		switch at, known := h.places[index]; {
		case w.over:
		case !known:
			missing = true
		case w.host != at.host:
			w.host = at.host
			placed[w] = at.host
		}
	}
	parent := d.parent
	if missing && h.follows == nil && !d.closed {
		var ctx context.Context
		ctx, h.follows = context.WithCancel(d.life)
		key, name := h.key, h.uid
		d.running.Go(func() {
			h.findPlaces(ctx, &berthv1.ListMembersRequest{Job: key.Job, Stage: key.Stage, Name: name,
				Own: true, WaitSeconds: proto.Int32(int32(placesWait / time.Second))})
		})
	}
	d.mu.Unlock()
	for w, host := range placed {
		parent.Placed(w.spec.Worker, w.spec.Epoch, host)
	}
}

// findPlaces reads the members that the child has of its own until it knows where all workers run.
func (h *hold) findPlaces(ctx context.Context, request *berthv1.ListMembersRequest) {
	d := h.driver
	for {
		select {
		case d.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		list, err := d.cfg.Child.Members(ctx, request)
		<-d.places
		if err != nil {
			if ctx.Err() == nil && !fault.Is(err, fault.ReasonNotFound) {
				h.log.Debug("the child does not list where the workers run", "reservation", request.GetName(), "error", err)
			}
			d.pause(ctx)
			continue
		}
		request.Cursor = list.GetCursor()
		d.mu.Lock()
		if ctx.Err() != nil {
			d.mu.Unlock()
			return
		}
		for _, m := range list.GetMembers() {
			if h.numbers[m.GetIndex()] == m.GetNumber() {
				h.places[m.GetIndex()] = place{m.GetExecutor(), cmp.Or(m.GetHost(), m.GetExecutor())}
			}
		}
		done := len(h.places) >= len(h.numbers)
		if done {
			h.follows()
			h.follows = nil
		}
		for _, one := range d.holds {
			if one.isOfStage(h.origin) {
				one.notify()
			}
		}
		d.mu.Unlock()
		if done {
			return
		}
	}
}
