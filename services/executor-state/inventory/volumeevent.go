package inventory

import (
	"strings"

	"berth.dev/pkg/model"
)

// volumeEventKinds are the kinds of events about volumes, in the order in which one effect
// has them.
var volumeEventKinds = []model.EventKind{model.EventVolumeReady, model.EventVolumeMoved, model.EventVolumeLost,
	model.EventVolumeAbandoned, model.EventVolumeDestroyed}

// volumeEvents returns the events of a change of a chunk of volumes, one for each kind. An
// event names the worker indexes and executors of its volumes, and its message has their
// IDs in the same order.
func (c *Core) volumeEvents(stage model.Key, before, after []model.Volume) (events []model.JobEvent) {
	changed := map[model.EventKind][]model.Volume{}
	for i := range before {
		was := &before[i]
		now := &model.Volume{Ordinal: was.Ordinal}
		if at, found := findVolume(after, was); found {
			now = &after[at]
		}
		if kind := c.volumeEvent(was, now); kind != 0 {
			named := *was
			named.Ordinal = now.Ordinal
			changed[kind] = append(changed[kind], named)
		}
	}
	for _, kind := range volumeEventKinds {
		if list := changed[kind]; len(list) > 0 {
			events = append(events, c.eventOf(kind, stage, list))
		}
	}
	return events
}

// volumeEvent returns the kind of event of a change of a volume; 0 if there is none. A state
// of VolumeUnset means that the volume was removed.
func (c *Core) volumeEvent(was, now *model.Volume) model.EventKind {
	switch {
	case now.Ordinal != was.Ordinal:
		return model.EventVolumeMoved
	case now.State == was.State:
		return 0
	case now.State == model.VolumeReady:
		return model.EventVolumeReady
	case now.State == model.VolumeLost:
		return model.EventVolumeLost
	case now.State == model.VolumeAbandoned:
		return model.EventVolumeAbandoned
	case now.State == model.VolumeUnset:
		if home := c.home(was); was.State == model.VolumeLost || home == nil || home.state == model.ExecutorLost {
			return model.EventVolumeAbandoned // a LOST executor confirms nothing
		}
		return model.EventVolumeDestroyed
	}
	return 0
}

func (c *Core) eventOf(kind model.EventKind, stage model.Key, list []model.Volume) model.JobEvent {
	event := model.JobEvent{Kind: kind, Time: c.now, Key: stage, Count: int32(len(list))}
	ids := make([]string, len(list))
	for i := range list {
		v := &volume{&list[i], stage}
		ids[i] = v.ID
		event.Workers = append(event.Workers, model.EventWorker{ID: model.WorkerID{Index: v.Index}, Executor: c.homeName(v)})
	}
	event.Message = "volume " + strings.Join(ids, ", ")
	return event
}
