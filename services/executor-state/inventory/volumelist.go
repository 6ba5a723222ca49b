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

// VolumesReported is the reply to ReportVolumes.
type VolumesReported struct{}

// DeleteVolumes is the request to delete volumes. A volume in use is deleted once the lease
// of its worker has ended. A repeat is harmless, because IDs are never reused. Unknown IDs
// are ignored. The reply's Value is a [VolumesChanged].
type DeleteVolumes struct{ IDs []string }

// AbandonVolumes is the request to give volumes up, because an operator states that their
// homes or disks are lost for good. Their worker indexes start elsewhere, with new volumes.
// It is refused if a worker is on one of the volumes. Unknown IDs are ignored. The reply's
// Value is a [VolumesChanged].
type AbandonVolumes struct{ IDs []string }

// VolumesChanged is the reply to DeleteVolumes and AbandonVolumes.
type VolumesChanged struct {
	// Count is the number of IDs that are known.
	Count int
}

// maxListed is the maximum number of volumes in a list of an executor, and maxVolumeID the
// maximum length of an ID.
const (
	maxListed   = 10_000
	maxVolumeID = 64
)

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
	a := c.allocations[v.Ordinal]
	if a == nil || a.host == nil {
		return nil, false
	}
	list = c.listOf(a.host)
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
		if h == nil || h.Record.Ordinal == v.Ordinal {
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
	var bad policy.Violations
	checkVolumeIDs(&bad, "volumes", r.IDs, maxListed)
	checkVolumeIDs(&bad, "gone", r.Gone, maxListed)
	if err := bad.Err(); err != nil {
		return VolumesReported{}, err
	}
	review := c.takeList(h, r)
	gone := volumeEdits{stages: c.stages}
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
	return VolumesReported{}, nil
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
		if !slices.Contains(r.Gone, id) {
			list.ids[id] = true
		}
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

func (c *Core) deleteVolumes(r DeleteVolumes) (VolumesChanged, error) {
	known, err := c.selectVolumes(r.IDs)
	if err != nil {
		return VolumesChanged{}, err
	}
	edits := volumeEdits{stages: c.stages}
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
	return VolumesChanged{len(known)}, nil
}

func (c *Core) abandonVolumes(r AbandonVolumes) (VolumesChanged, error) {
	known, err := c.selectVolumes(r.IDs)
	if err != nil {
		return VolumesChanged{}, err
	}
	for _, v := range known {
		if c.stages[v.stage].leased(v.Volume) {
			return VolumesChanged{}, fault.New(fault.Precondition, fault.ReasonVolumeInUse,
				"volume %s is in use: cancel worker index %d of %s/%s first", v.ID, v.Index, v.stage.Job, v.stage.Stage)
		}
	}
	edits := volumeEdits{stages: c.stages}
	for _, v := range known {
		if !v.State.Current() {
			continue
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
	var bad policy.Violations
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

func checkVolumeIDs(bad *policy.Violations, field string, ids []string, most int) {
	if len(ids) > most {
		bad.Add(fault.ReasonTooLarge, field, "must be at most %d, got %d", most, len(ids))
	}
	for _, id := range ids {
		if !model.ValidName(id, maxVolumeID) {
			bad.Add(fault.ReasonBadName, field, "%.64q is not the ID of a volume", id)
			return
		}
	}
}

// decideEach decides the changes of each chunk as an effect of its own. So a request for
// many volumes is never larger than a transaction.
func (c *Core) decideEach(e volumeEdits) {
	for _, ref := range e.order {
		one := volumeEdits{stages: c.stages, order: []model.Ref{ref}, chunks: e.chunks}
		c.decide(one.effect())
	}
}
