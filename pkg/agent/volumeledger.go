package agent

import (
	"maps"
	"slices"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// volume is the state of a volume that the executor has, or has destroyed.
type volume struct {
	// exists is set while the volume has a directory. destroyed is set once it has a
	// tombstone, and removing while the agent removes its directory.
	exists, destroyed, removing bool
	// listed is the sequence of the first list that confirms the destruction, or 0. received
	// is set once the leader of executor-state has received such a list.
	listed   int64
	received bool
}

// gone reports whether the executor has destroyed the volume and will never have it again.
// Then the volume uses no disk space.
func (v volume) gone() bool { return v.destroyed && !v.exists && !v.removing }

func (l *ledger) setVolume(id string, v volume) {
	if v == (volume{}) {
		delete(l.volumes, id)
		return
	}
	l.volumes[id] = v
}

// observe records whether a volume has a directory.
func (l *ledger) observe(id string, exists bool) {
	v := l.volumes[id]
	if v.exists != exists {
		v.exists = exists
		l.setVolume(id, v)
		l.volumesDue = true
	}
}

// occupy decides whether a worker that submit accepted may start on a volume. If it may, no
// other worker may until this one has ended, and the volume cannot be destroyed. With
// create, the caller makes the directory if it does not exist.
func (l *ledger) occupy(id identity, volume string, create bool) error {
	v := l.volumes[volume]
	switch user := l.userOf(volume); {
	case v.destroyed:
		return fault.New(fault.Precondition, fault.ReasonVolumeDestroyed, "%s has destroyed volume %s", l.executor, volume)
	case user != nil:
		return l.inUse(volume, user)
	case !v.exists && !create:
		return l.missing(volume)
	case !v.exists && l.existing() >= model.MaxListedVolumes:
		return startFailed("%s has %d volumes already", l.executor, model.MaxListedVolumes)
	}
	l.entries[id].volume = volume
	return nil
}

func (l *ledger) inUse(volume string, user *entry) error {
	return fault.New(fault.Precondition, fault.ReasonVolumeInUse, "%s of epoch %d is on volume %s and has not ended",
		user.Worker, user.Epoch, volume)
}

func (l *ledger) missing(volume string) error {
	return fault.New(fault.Precondition, fault.ReasonVolumeMissing, "%s has no directory of volume %s", l.executor, volume)
}

// userOf returns the worker on a volume that has not ended, or nil. A worker that the agent has
// adopted may have a tombstone.
func (l *ledger) userOf(volume string) *entry {
	for _, e := range l.entries {
		if e.volume == volume && !e.state.Terminal() &&
			!slices.ContainsFunc(l.tombstones, func(t tombstone) bool { return t.identity == e.identity }) {
			return e
		}
	}
	return nil
}

// existing returns the number of volumes with a directory.
func (l *ledger) existing() (n int) {
	for _, v := range l.volumes {
		if v.exists {
			n++
		}
	}
	return n
}

// drop decides on a request to destroy volumes. It returns those that the caller must
// destroy: it must make their tombstones durable, call destroy, remove their directories
// and call removed. The others are being destroyed, or their confirmation was not received
// yet. If it was received, the caller destroys the volume once more and so repeats the
// confirmation: the control plane may have lost it with a restored backup.
func (l *ledger) drop(term, incarnation int64, ids []string) (fresh []string, err error) {
	if err := l.admit(term, incarnation); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if user := l.userOf(id); user != nil {
			return nil, l.inUse(id, user)
		}
		if v := l.volumes[id]; !v.removing && (!v.gone() || v.received) {
			fresh = append(fresh, id)
		}
	}
	return fresh, nil
}

// destroy records that the removal of a volume with a durable tombstone has begun.
func (l *ledger) destroy(id string, now time.Time) {
	l.bury(tombstone{Volume: id, At: now})
	l.volumes[id] = volume{exists: l.volumes[id].exists, destroyed: true, removing: true}
}

// removed records that a destroyed volume has no directory any more.
func (l *ledger) removed(id string) {
	l.volumes[id] = volume{destroyed: true}
	l.volumesDue = true
}

// resume returns the destroyed volumes whose directories an earlier agent has not removed.
// The caller must remove them and call removed.
func (l *ledger) resume() (ids []string) {
	for id, v := range l.volumes {
		if v.destroyed && v.exists {
			v.removing = true
			l.volumes[id] = v
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// buryVolume records that a volume has a tombstone, and reports whether it is the first.
func (l *ledger) buryVolume(id string) bool {
	v := l.volumes[id]
	first := !v.destroyed
	v.destroyed = true
	l.volumes[id] = v
	return first
}

// pruneVolume forgets a volume whose tombstone is dropped. If the confirmation was not
// received yet, only the next agent forgets the volume, and gets the request once more.
func (l *ledger) pruneVolume(id string) {
	if v := l.volumes[id]; v.received {
		l.setVolume(id, volume{exists: v.exists})
	}
}

// listVolumes returns the next list of the volumes, or nil if none is due. A volume whose
// removal has not finished is still listed, because it uses the disk.
func (l *ledger) listVolumes() *controlv1.VolumeList {
	if !l.volumesDue {
		return nil
	}
	l.volumesDue = false
	l.listed++
	list := &controlv1.VolumeList{Sequence: l.listed}
	for _, id := range slices.Sorted(maps.Keys(l.volumes)) {
		v := l.volumes[id]
		switch {
		case v.exists && len(list.Ids) < model.MaxListedVolumes:
			list.Ids = append(list.Ids, id)
		case v.gone() && !v.received && len(list.Gone) < model.MaxListedVolumes:
			list.Gone = append(list.Gone, id)
			if v.listed == 0 {
				v.listed = l.listed
				l.volumes[id] = v
			}
		}
	}
	return list
}

// listReceived records that the leader of executor-state has received the list with that
// sequence. Another list is due if it did not fit all destroyed volumes.
func (l *ledger) listReceived(sequence int64) {
	sequence = min(sequence, l.listed)
	if sequence <= l.received {
		return
	}
	l.received = sequence
	for id, v := range l.volumes {
		switch {
		case !v.gone() || v.received:
		case v.listed == 0:
			l.volumesDue = true
		case v.listed <= sequence:
			v.received = true
			l.volumes[id] = v
		}
	}
}
