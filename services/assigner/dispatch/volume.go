package dispatch

import (
	"maps"
	"slices"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// setVolumeChunk stores a chunk of volumes, and updates which volumes each executor has.
func (c *Core) setVolumeChunk(ref model.Ref, chunk *model.VolumeChunk) {
	if c.quarantined.volumes[ref] {
		chunk = nil
	}
	homes := map[uint32]bool{}
	if before := c.volumes[ref]; before != nil {
		for i := range before.Volumes {
			v := &before.Volumes[i]
			homes[v.Ordinal] = true
			delete(c.host(v.Ordinal).volumes, v.ID)
			delete(c.volumeIDs, v.ID)
		}
	}
	delete(c.volumes, ref)
	if chunk != nil {
		c.volumes[ref] = chunk
		for i := range chunk.Volumes {
			v := &chunk.Volumes[i]
			homes[v.Ordinal] = true
			h := c.host(v.Ordinal)
			if h.volumes == nil {
				h.volumes = map[string]bool{}
			}
			h.volumes[v.ID] = v.State == model.VolumeDestroying
			c.volumeIDs[v.ID] = true
		}
	}
	for _, ordinal := range slices.Sorted(maps.Keys(homes)) {
		c.updateDrops(ordinal)
	}
}

// onVolume reports whether the workers of a task start on volumes.
func (c *Core) onVolume(uid string) bool {
	first := c.leases[uid].chunks[0]
	return c.spec(uid).Volume != nil || first != nil && first.OnVolumes
}

// volumeRef returns the Ref of the chunk with the volume of a worker.
func (c *Core) volumeRef(key workerKey) model.Ref {
	t := c.tasks[key.uid].header.Key
	return model.VolumeChunkRef(model.Key{Job: t.Job, Stage: t.Stage}, key.workerID.Index)
}

// volumeUnreadable reports whether the record of the volume of a start request is
// quarantined. The request then waits until the record is repaired: if the core gave the
// worker up instead, the end of its lease would free the executor, whose use is unknown.
func (c *Core) volumeUnreadable(r *request) bool {
	return len(c.quarantined.volumes) > 0 && c.onVolume(r.key.uid) && c.quarantined.volumes[c.volumeRef(r.key)]
}

// volumeFor returns the volume on which the worker of a request must start, or nil if it
// starts on none. It returns false if the worker needs a volume and the records show none
// that the worker's executor has.
func (c *Core) volumeFor(r *request) (volume *VolumeStart, ok bool) {
	if r.kind != startRequest || !c.onVolume(r.key.uid) {
		return nil, true
	}
	if chunk := c.volumes[c.volumeRef(r.key)]; chunk != nil {
		for i := range chunk.Volumes {
			v := &chunk.Volumes[i]
			if v.Index == r.key.workerID.Index && v.Ordinal == r.key.ordinal &&
				(v.State == model.VolumePlanned || v.State == model.VolumeReady) {
				return &VolumeStart{ID: v.ID, Create: v.State == model.VolumePlanned && !v.Used}, true
			}
		}
	}
	return nil, false
}

// failWithoutVolume counts a start request that cannot be sent, because the records show no
// volume for the worker, as if the executor had refused it. A lease and its volumes are one
// transaction and a volume is kept while a worker on it is leased, so waiting would not help:
// the next grant of the index decides again.
func (c *Core) failWithoutVolume(r *request) {
	t, at, _ := c.find(r.key)
	f := &call{key: r.callKey(), attempt: c.read(t, at).Attempts + 1, ended: true}
	c.attemptFailed(f, t, at, Refused{Reason: fault.ReasonVolumeMissing,
		Message: "no record assigns a usable volume on the executor to the worker index"})
	c.flush()
}

// drops returns the volumes that an executor must destroy, in order: those whose records say
// so, and those that an operator requests to remove. If a record names a volume, only that
// record decides. While such a record may be quarantined, no removal counts.
func (c *Core) drops(h *host) (ids []string) {
	for id, destroying := range h.volumes {
		if destroying {
			ids = append(ids, id)
		}
	}
	if h.record != nil && len(c.quarantined.volumes) == 0 {
		for _, id := range h.record.Removals {
			if !c.volumeIDs[id] {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// newDrops returns the drops that no request has named since the last round.
func (c *Core) newDrops(h *host) []string {
	return slices.DeleteFunc(c.drops(h), func(id string) bool { return h.asked[id] })
}

// nextDrops returns the volumes that the next request names. When all drops were named, a
// new round begins. An executor refuses a request as a whole if a worker is on one of the
// volumes, so each failure in a row halves the number.
func (c *Core) nextDrops(h *host, failures int) []string {
	ids := c.newDrops(h)
	if len(ids) == 0 {
		clear(h.asked)
		ids = c.newDrops(h)
	}
	ids = ids[:max(1, min(len(ids), model.MaxDroppedVolumes)>>failures)]
	if h.asked == nil {
		h.asked = map[string]bool{}
	}
	for _, id := range ids {
		h.asked[id] = true
	}
	return ids
}

// updateDrops creates, updates or drops the request to destroy volumes of an executor, so
// that it matches the records. An additional volume does not wait for the repeat of a
// request that succeeded, but for the backoff of one that failed.
func (c *Core) updateDrops(ordinal uint32) {
	h, key := c.hosts[ordinal], workerKey{ordinal: ordinal}
	if !c.leading || h == nil {
		return
	}
	switch r := c.requests[key]; {
	case len(c.drops(h)) == 0:
		h.asked = nil
		c.dropRequest(key)
	case r == nil:
		if r = c.newRequest(key, volumesRequest, nil); c.calls[r.callKey()] == nil {
			c.schedule(r, 0)
		}
	case r.queue == &c.due && r.failures == 0 && len(c.newDrops(h)) > 0:
		c.schedule(r, 0)
	}
}

// updateAllDrops updates the requests to destroy volumes of all executors.
func (c *Core) updateAllDrops() {
	var ordinals []uint32
	for ordinal, h := range c.hosts {
		if len(h.volumes) > 0 || h.record != nil && len(h.record.Removals) > 0 {
			ordinals = append(ordinals, ordinal)
		}
	}
	slices.Sort(ordinals)
	for _, ordinal := range ordinals {
		c.updateDrops(ordinal)
	}
}

// restartDrops makes the request to destroy volumes of an executor begin anew, because the
// executor has registered again.
func (c *Core) restartDrops(h *host, ordinal uint32) {
	h.asked = nil
	c.dropRequest(workerKey{ordinal: ordinal})
}

func (c *Core) dropDone(d DropDone) {
	ordinal, known := c.ordinals[d.Executor]
	f := c.calls[callKey{workerKey: workerKey{ordinal: ordinal}}]
	if known && f != nil && f.number == d.Call {
		c.dropEnded(f, d.Outcome)
	}
}

// dropEnded handles the outcome of a request to destroy volumes. The core repeats the
// request until the records no longer name the volumes: only they confirm that the volumes
// were destroyed.
func (c *Core) dropEnded(f *call, outcome any) {
	c.endCall(f)
	c.trackRefusal(f, outcome)
	r := c.unqueued(f)
	if r == nil {
		return
	}
	if _, accepted := outcome.(Dropping); !accepted {
		c.retry(r)
		return
	}
	r.failures = 0
	if len(c.newDrops(c.host(f.key.ordinal))) > 0 {
		c.schedule(r, 0)
	} else {
		c.schedule(r, repeatDrop)
	}
}
