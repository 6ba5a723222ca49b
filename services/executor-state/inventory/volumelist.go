package inventory

import (
	"slices"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/executor-state/policy"
)

// ReportVolumes is the whole list of volumes that an executor has. The reply's Value is a
// [VolumesReported], once everything that follows from the list is durable.
type ReportVolumes struct {
	Executor string
	// Incarnation is that of the executor, and Sequence rises with each list of the
	// incarnation. A list that is not later than the last one proves nothing.
	Incarnation, Sequence int64
	// IDs has the volumes that the executor has. Gone has the volumes that it has destroyed
	// and will never have again.
	IDs, Gone []string
}

// VolumesReported is the reply to ReportVolumes, with the term of the leader.
type VolumesReported struct{ Term int64 }

// DeleteVolumes is the request to delete volumes. A volume in use is deleted once the lease
// of its worker has ended. A repeat is harmless, because IDs are never reused. Unknown IDs
// are ignored. The reply's Value is a [VolumesChanged].
type DeleteVolumes struct {
	IDs []string
	// Executor, if set, excludes the volumes of other executors, and also selects volumes that
	// the executor lists and that no record names. Job, if set, excludes the volumes of other
	// jobs. Only one of them may be set.
	Executor, Job string
}

// AbandonVolumes is the request to give volumes up, because an operator states that their
// homes or disks are lost for good. Their worker indexes start elsewhere, with new volumes.
// The record of a volume that is DESTROYING is deleted without a confirmation, which only an
// executor that is not LOST can give. The request is refused if a worker is on one of the
// volumes, or if the executor of a DESTROYING one is not LOST. Unknown IDs are ignored. The reply's
// Value is a [VolumesChanged].
type AbandonVolumes struct{ IDs []string }

// VolumesChanged is the reply to DeleteVolumes and AbandonVolumes.
type VolumesChanged struct {
	// Count is the number of IDs that are known.
	Count int
}

// volumeList is the latest list of an executor's volumes. Only the leader has it. Agents
// send their lists again to a new leader, which until then makes no volume LOST.
type volumeList struct {
	incarnation, sequence int64
	ids                   map[string]bool
	// since is when this core first received a list of the executor.
	since time.Time
}

// listAfter returns the list of a volume's home that was made after the volume last changed,
// and reports whether it has the volume; nil if there is no such list.
func (c *Core) listAfter(v *model.Volume) (list *volumeList, lists bool) {
	home := c.home(v)
	if home == nil {
		return nil, false
	}
	list = c.listOf(home)
	if list == nil || list.incarnation < v.Incarnation ||
		list.incarnation == v.Incarnation && list.sequence <= v.Sequence {
		return nil, false
	}
	return list, list.ids[v.ID]
}

// listOf returns the list of an executor; nil if there is none of its incarnation.
func (c *Core) listOf(h *host) *volumeList {
	if list := c.lists[h.ID]; list != nil && list.incarnation == h.Record.Incarnation && !h.Record.Lost {
		return list
	}
	return nil
}

// listedElsewhere returns the first executor by ID that lists a volume and is not its home;
// nil if there is none.
func (c *Core) listedElsewhere(v *model.Volume) (*host, *volumeList) {
	for _, id := range c.listers[v.ID] {
		h := c.hosts[id]
		if h == nil || h.Record.Ordinal == v.Ordinal || slices.Contains(h.Record.Removals, v.ID) {
			continue
		}
		if list := c.listOf(h); list != nil {
			return h, list
		}
	}
	return nil, nil
}

func (c *Core) reportVolumes(r ReportVolumes) (VolumesReported, error) {
	h := c.hosts[r.Executor]
	switch {
	case h == nil:
		return VolumesReported{}, fault.New(fault.NotFound, fault.ReasonNotFound, "executor %q is not registered",
			r.Executor)
	case h.Record.Incarnation != r.Incarnation || h.givenUp():
		return VolumesReported{}, fault.New(fault.Precondition, fault.ReasonOtherIncarnation,
			"executor %q: incarnation %d is over, register again", r.Executor, r.Incarnation)
	case r.Sequence < 1:
		return VolumesReported{}, fault.BadField(fault.ReasonInvalid, "sequence", "must be at least 1, got %d", r.Sequence)
	}
	var bad model.Violations
	checkVolumeIDs(&bad, "volumes", r.IDs, model.MaxListedVolumes)
	checkVolumeIDs(&bad, "gone", r.Gone, model.MaxListedVolumes)
	if err := bad.Err(); err != nil {
		return VolumesReported{}, err
	}
	review := c.takeList(h, r)
	c.keepRemovals(h)
	gone := volumeEdits{Core: c}
	for _, id := range r.Gone {
		v := c.volumes[id]
		if v == nil || v.State != model.VolumeDestroying || v.Ordinal != h.Record.Ordinal {
			continue
		}
		c.becomes(&model.Volume{ID: id, State: v.State}, VolumeGone)
		gone.remove(v.stage, v.Volume)
	}
	c.decideEach(gone)
	for _, ref := range review {
		c.reviewVolumes(ref)
	}
	return VolumesReported{c.term}, nil
}

// takeList stores the list of an executor unless it has a later one, and returns the chunks
// with volumes about which the list says something.
func (c *Core) takeList(h *host, r ReportVolumes) (review []model.Ref) {
	known := c.lists[h.ID]
	if known != nil && known.incarnation == r.Incarnation && known.sequence >= r.Sequence {
		return nil
	}
	list := &volumeList{r.Incarnation, r.Sequence, map[string]bool{}, c.now}
	for _, id := range r.IDs {
		list.ids[id] = true
	}
	for _, id := range r.Gone {
		delete(list.ids, id)
	}
	if known != nil {
		list.since = known.since
		for id := range known.ids {
			if !list.ids[id] {
				c.setLister(id, h.ID, false)
			}
		}
	}
	c.lists[h.ID] = list
	refs := map[model.Ref]bool{}
	add := func(v *volume) {
		if ref := v.ref(); !refs[ref] {
			refs[ref] = true
			review = append(review, ref)
		}
	}
	for id := range list.ids {
		c.setLister(id, h.ID, true)
		if v := c.volumes[id]; v != nil {
			add(v)
		}
	}
	for _, v := range h.allocation.volumes {
		add(v)
	}
	slices.SortFunc(review, compareVolumeRefs)
	return review
}

// dropList forgets the list of a deleted executor.
func (c *Core) dropList(executor string) {
	if list := c.lists[executor]; list != nil {
		for id := range list.ids {
			c.setLister(id, executor, false)
		}
		delete(c.lists, executor)
	}
}

func compareVolumeRefs(a, b model.Ref) int {
	if order := a.Key.Compare(b.Key); order != 0 {
		return order
	}
	return int(a.Chunk) - int(b.Chunk)
}

func (c *Core) setLister(id, executor string, lists bool) {
	listers := c.listers[id]
	switch at, found := slices.BinarySearch(listers, executor); {
	case lists && !found:
		listers = slices.Insert(listers, at, executor)
	case !lists && found:
		listers = slices.Delete(listers, at, at+1)
	}
	if c.listers[id] = listers; len(listers) == 0 {
		delete(c.listers, id)
	}
}

// keepRemovals removes the volumes that an executor no longer lists, and those that a record
// names, from those that it must destroy.
func (c *Core) keepRemovals(h *host) {
	list := c.listOf(h)
	if list == nil || len(h.Record.Removals) == 0 {
		return
	}
	next := *h.Record
	next.Removals = slices.DeleteFunc(slices.Clone(next.Removals), func(id string) bool {
		return !list.ids[id] || c.volumes[id] != nil
	})
	if len(next.Removals) < len(h.Record.Removals) {
		c.decide(model.Effect{Puts: []model.Record{&next}})
	}
}

// removeUnknown requests that an executor destroys volumes that it lists and that no record
// names. It returns how many of the IDs are such volumes. It refuses volumes of other
// executors: the directory here may be the only copy. An executor that is not READY may have
// volumes that it has not listed.
func (c *Core) removeUnknown(executor string, ids []string) (count int, err error) {
	h := c.hosts[executor]
	if h == nil {
		return 0, fault.New(fault.NotFound, fault.ReasonNotFound, "executor %q is not registered", executor)
	}
	list := c.listOf(h)
	next := *h.Record
	next.Removals = slices.Clone(next.Removals)
	for _, id := range ids {
		switch v := c.volumes[id]; {
		case v != nil && v.Ordinal == h.Record.Ordinal:
			continue
		case list == nil && h.state != model.ExecutorReady:
			return 0, fault.New(fault.Precondition, fault.ReasonVolumeAway,
				"executor %s is %s and has not listed volume %s: it can be deleted once the executor is READY", executor, h.shown(), id)
		case list == nil || !list.ids[id]:
			continue
		case v != nil:
			return 0, fault.BadField(fault.ReasonInvalid, "executor", "volume %s belongs to executor %s: delete it without the ID of %s",
				id, c.homeName(v), executor)
		case len(c.quarantined.volumes) > 0:
			return 0, fault.New(fault.Precondition, fault.ReasonPoison,
				"a record of volumes is quarantined and may name volume %s: see the findings", id)
		}
		count++
		if at, found := slices.BinarySearch(next.Removals, id); !found {
			next.Removals = slices.Insert(next.Removals, at, id)
		}
	}
	if len(next.Removals) > model.MaxRemovals {
		return 0, fault.BadField(fault.ReasonTooLarge, "ids", "an executor destroys at most %d unknown volumes at a time, got %d",
			model.MaxRemovals, len(next.Removals))
	}
	if len(next.Removals) > len(h.Record.Removals) {
		c.decide(model.Effect{Puts: []model.Record{&next}})
	}
	return count, nil
}

func (c *Core) deleteVolumes(r DeleteVolumes) (VolumesChanged, error) {
	known, err := c.selectVolumes(r.IDs)
	if err != nil {
		return VolumesChanged{}, err
	}
	unknown := 0
	if r.Job != "" {
		if r.Executor != "" {
			return VolumesChanged{}, fault.BadField(fault.ReasonInvalid, "executor", "must not be set with job")
		}
		known = slices.DeleteFunc(known, func(v *volume) bool { return v.stage.Job != r.Job })
	}
	if r.Executor != "" {
		known = slices.DeleteFunc(known, func(v *volume) bool { return c.homeName(v) != r.Executor })
		if unknown, err = c.removeUnknown(r.Executor, r.IDs); err != nil {
			return VolumesChanged{}, err
		}
	}
	edits := volumeEdits{Core: c}
	for _, v := range known {
		if v.State == model.VolumeDestroying || v.Delete {
			continue
		}
		next := *v.Volume
		next.Delete = true
		if next, remains := c.review(c.stages[v.stage], next); remains {
			edits.set(v.stage, next)
		} else {
			edits.remove(v.stage, &next)
		}
	}
	c.decideEach(edits)
	return VolumesChanged{len(known) + unknown}, nil
}

func (c *Core) abandonVolumes(r AbandonVolumes) (VolumesChanged, error) {
	known, err := c.selectVolumes(r.IDs)
	if err != nil {
		return VolumesChanged{}, err
	}
	for _, v := range known {
		switch h := c.home(v.Volume); {
		case c.stages[v.stage].leased(v.Volume):
			return VolumesChanged{}, fault.New(fault.Precondition, fault.ReasonVolumeInUse,
				"volume %s is in use: cancel worker index %d of %s/%s first", v.ID, v.Index, v.stage.Job, v.stage.Stage)
		case v.State == model.VolumeDestroying && h != nil && h.state != model.ExecutorLost:
			return VolumesChanged{}, fault.New(fault.Precondition, fault.ReasonVolumeInUse,
				"volume %s is being destroyed: it can be abandoned once executor %s is LOST", v.ID, h.ID)
		}
	}
	edits := volumeEdits{Core: c}
	for _, v := range known {
		if v.State == model.VolumeAbandoned {
			continue
		}
		if !c.stages[v.stage].mayRemove(v.Volume) {
			return VolumesChanged{}, fault.New(fault.Unavailable, fault.ReasonUnavailable,
				"volume %s is being changed: try again", v.ID)
		}
		next := *v.Volume
		if c.becomes(&next, VolumeGivenUp) {
			edits.set(v.stage, next)
		} else {
			edits.remove(v.stage, &next)
		}
	}
	c.decideEach(edits)
	return VolumesChanged{len(known)}, nil
}

// selectVolumes returns the known volumes among the IDs, each once.
func (c *Core) selectVolumes(ids []string) (known []*volume, err error) {
	var bad model.Violations
	if len(ids) == 0 {
		bad.Add(fault.ReasonRequired, "ids", "is required")
	}
	checkVolumeIDs(&bad, "ids", ids, policy.MaxSelected)
	seen := map[string]bool{}
	for _, id := range ids {
		if v := c.volumes[id]; v != nil && !seen[id] {
			seen[id] = true
			known = append(known, v)
		}
	}
	return known, bad.Err()
}

func checkVolumeIDs(bad *model.Violations, field string, ids []string, most int) {
	if len(ids) > most {
		bad.Add(fault.ReasonTooLarge, field, "must be at most %d, got %d", most, len(ids))
	}
	for _, id := range ids {
		if !model.ValidName(id, model.MaxVolumeID) {
			bad.Add(fault.ReasonBadName, field, "%.64q is not the ID of a volume", id)
			return
		}
	}
}

// decideEach decides the changes of each chunk as an effect of its own. So a request for
// many volumes is never larger than a transaction.
func (c *Core) decideEach(e volumeEdits) {
	for _, ref := range e.order {
		one := volumeEdits{Core: c, order: []model.Ref{ref}, chunks: e.chunks}
		c.decide(one.effect())
	}
}
