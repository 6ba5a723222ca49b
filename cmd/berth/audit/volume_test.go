package audit

import (
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// volumes returns a chunk of the volumes of the stage of reservation.
func volumes(list ...model.Volume) *model.VolumeChunk {
	return &model.VolumeChunk{Job: "job", Stage: "stage", Volumes: list}
}

// planned returns the volume of a worker of reservation, as a grant writes it.
func planned(id string, index int32, ordinal uint32) model.Volume {
	return model.Volume{ID: id, Index: index, Ordinal: ordinal, State: model.VolumePlanned, Since: since, Whole: true,
		Each: resource.Vector{"cpu": 1000, "slots": 1}, Resource: "slots"}
}

// become returns a volume in another state, which nobody wants.
func become(v model.Volume, state model.VolumeState) model.Volume {
	v.State, v.Whole, v.UnwantedSince = state, false, since
	return v
}

var since = time.Unix(1, 0).UTC()

// grantVolume writes a reservation of one worker with the index place*10, and its lease and
// volume on host 1.
func (w *world) grantVolume(uid string, place int64, more ...model.Volume) (*model.Reservation, *model.LeaseChunk,
	model.Volume) {
	r := reservation(uid, place, 1)
	l := lease(r, w.put(r), w.revision, 1)
	l.OnVolumes = true
	v := planned("v-"+uid, int32(place)*10, 1)
	w.put(l, volumes(append([]model.Volume{v}, more...)...))
	return r, l, v
}

// A reservation with a volume is a queue of its own, and the rest of a split one is another.
func TestVolumesOvertake(t *testing.T) {
	w := newWorld(t)
	waits, r := reservation("waits", 0, 1), reservation("r", 1, 3)
	waits.Spec.Volume = &model.VolumeRequest{Resource: "slots"}
	r.Spec.Volume = waits.Spec.Volume
	w.put(waits)
	epoch := w.put(r)
	part, rest := splitFirst(r, epoch)
	w.put(part, rest)
	cut := w.revision
	l := lease(rest, epoch, cut, 1)
	l.OnVolumes = true
	w.put(l, volumes(planned("v11", 11, 1), planned("v12", 12, 1)))
	w.run(reservation("other", 2, 1), 2)
	wantRules(t, w.audit())
}

// TestVolumesAllow plays histories without a violation.
func TestVolumesAllow(t *testing.T) {
	w := newWorld(t)
	r, l, v := w.grantVolume("a", 0)
	w.put(header(l), task(l, model.WorkerAssigned))
	w.put(in(r, model.Active))
	v.State = model.VolumeReady
	w.put(volumes(v))
	w.put(task(l, model.WorkerCompleted))
	w.put(deletion{l.Ref()})
	w.put(volumes(become(v, model.VolumeReady)))
	// The disk returns to an executor that is full.
	w.put(volumes(become(v, model.VolumeLost)))
	w.run(reservation("full", 1, 4), 1)
	w.put(volumes(become(v, model.VolumeReady)))
	// The home is LOST, and its disk comes to another full executor.
	w.run(reservation("full2", 2, 4), 2)
	lost := host(1, 4)
	lost.Lost = true
	w.put(lost)
	moved := become(v, model.VolumeReady)
	moved.Ordinal = 2
	w.put(volumes(moved))
	// It moves again, in the transaction in which its LOST home returns.
	lost = host(2, 4)
	lost.Lost = true
	w.put(lost)
	moved.Ordinal = 1
	w.put(volumes(moved), host(2, 4))
	moved.Delete = true
	w.put(volumes(become(moved, model.VolumeDestroying)))
	w.put(deletion{volumes().Ref()})
	wantRules(t, w.audit())

	// A worker that was never dispatched.
	w = newWorld(t)
	r, l, v = w.grantVolume("a", 0)
	w.put(in(r, model.Cancelled))
	w.put(volumes(become(v, model.VolumeDestroying)), deletion{l.Ref()})
	a := w.audit()
	wantRules(t, a)
	a = New(space)
	a.Apply(w.snapshot())
	wantRules(t, a)

	// A volume whose time is over.
	w = newWorld(t)
	keep := time.Minute
	old := become(planned("v", 0, 1), model.VolumeAbandoned)
	old.KeepFor = &keep
	w.put(volumes(old))
	old = become(old, model.VolumeDestroying)
	old.Since = since.Add(keep)
	w.put(volumes(old))
	wantRules(t, w.audit())
}

// TestVolumesAreCounted checks that volumes use capacity, also without a worker.
func TestVolumesAreCounted(t *testing.T) {
	w := newWorld(t)
	w.grantVolume("a", 0)
	w.run(reservation("b", 1, 4), 1)
	wantRules(t, w.audit(), RuleCapacity)

	w = newWorld(t)
	w.put(volumes(become(planned("v", 0, 1), model.VolumeReady)))
	w.run(reservation("b", 1, 4), 1)
	wantRules(t, w.audit(), RuleCapacity)

	w = newWorld(t)
	w.put(reserveShares(map[string]int64{"web": 3}))
	w.grantVolume("a", 0)
	w.run(reservation("b", 1, 1), 1)
	wantRules(t, w.audit(), RuleShare)
}

// TestVolumeRules breaks the rules about volumes one by one.
func TestVolumeRules(t *testing.T) {
	for name, c := range map[string]struct {
		rule Rule
		play func(w *world, r *model.Reservation, l *model.LeaseChunk, v model.Volume)
	}{
		"leased elsewhere": {RuleVolumeHome, func(w *world, _ *model.Reservation, _ *model.LeaseChunk, _ model.Volume) {
			r := reservation("b", 1, 1)
			l := lease(r, w.put(r), w.revision, 2)
			l.OnVolumes = true
			w.put(l, &model.VolumeChunk{Job: "job", Stage: "stage", Volumes: []model.Volume{planned("v-a", 0, 1),
				planned("v-b", 10, 1)}})
		}},
		"leased without a volume": {RuleVolumeHome, func(w *world, _ *model.Reservation, _ *model.LeaseChunk,
			_ model.Volume) {
			r := reservation("b", 1, 1)
			l := lease(r, w.put(r), w.revision, 2)
			l.OnVolumes = true
			w.put(l)
		}},
		"gives up what its worker uses": {RuleVolumeHome, func(w *world, _ *model.Reservation, _ *model.LeaseChunk,
			v model.Volume) {
			v.Whole = false
			w.put(volumes(v))
		}},
		"one ID for two": {RuleVolumeHome, func(w *world, _ *model.Reservation, _ *model.LeaseChunk, v model.Volume) {
			w.put(&model.VolumeChunk{Job: "job", Stage: "other", Volumes: []model.Volume{planned(v.ID, 0, 2)}})
		}},
		"moved from a living home": {RuleVolumeHome, func(w *world, r *model.Reservation, l *model.LeaseChunk,
			v model.Volume) {
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(r, model.Active))
			w.put(task(l, model.WorkerCompleted))
			w.put(deletion{l.Ref()})
			v = become(v, model.VolumeReady)
			v.Ordinal = 2
			w.put(volumes(v))
		}},
		"moved after its home returned": {RuleVolumeHome, func(w *world, r *model.Reservation, l *model.LeaseChunk,
			v model.Volume) {
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(r, model.Active))
			w.put(task(l, model.WorkerCompleted))
			w.put(deletion{l.Ref()})
			lost := host(1, 4)
			lost.Lost = true
			w.put(lost)
			w.put(host(1, 4))
			v = become(v, model.VolumeReady)
			v.Ordinal = 2
			w.put(volumes(v))
		}},
		"two workers": {RuleVolumeOne, func(w *world, _ *model.Reservation, _ *model.LeaseChunk, _ model.Volume) {
			r := reservation("b", 0, 1)
			r.Workers[0].Number = 2
			l := lease(r, w.put(r), w.revision, 1)
			l.OnVolumes = true
			w.put(l)
		}},
		"deleted while READY": {RuleVolumeKept, func(w *world, _ *model.Reservation, _ *model.LeaseChunk, _ model.Volume) {
			ready := become(planned("old", 1, 1), model.VolumeReady)
			w.put(volumes(planned("v-a", 0, 1), ready))
			w.put(volumes(planned("v-a", 0, 1)))
		}},
		"destroyed without a reason": {RuleVolumeKept, func(w *world, _ *model.Reservation, _ *model.LeaseChunk,
			_ model.Volume) {
			ready := become(planned("old", 1, 1), model.VolumeReady)
			w.put(volumes(planned("v-a", 0, 1), ready))
			w.put(volumes(planned("v-a", 0, 1), become(ready, model.VolumeDestroying)))
		}},
		"destroyed before its time": {RuleVolumeKept, func(w *world, _ *model.Reservation, _ *model.LeaseChunk,
			_ model.Volume) {
			keep := time.Minute
			ready := become(planned("old", 1, 1), model.VolumeReady)
			ready.KeepFor = &keep
			w.put(volumes(planned("v-a", 0, 1), ready))
			w.put(volumes(planned("v-a", 0, 1), become(ready, model.VolumeDestroying)))
		}},
		"destroyed after its worker ran": {RuleVolumeKept, func(w *world, r *model.Reservation, l *model.LeaseChunk,
			v model.Volume) {
			ran := task(l, model.WorkerCompleted)
			ran.Workers[0].Incarnation = 1
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(r, model.Active))
			w.put(ran)
			w.put(volumes(become(v, model.VolumeDestroying)), deletion{l.Ref()})
		}},
		"destroyed while its lost worker may run": {RuleVolumeKept, func(w *world, r *model.Reservation,
			l *model.LeaseChunk, v model.Volume) {
			w.put(header(l), task(l, model.WorkerAssigned))
			w.put(in(r, model.Active))
			w.put(task(l, model.WorkerLost))
			w.put(volumes(become(v, model.VolumeDestroying)), deletion{l.Ref()})
		}},
	} {
		w := newWorld(t)
		r, l, v := w.grantVolume("a", 0)
		c.play(w, r, l, v)
		t.Run(name, func(t *testing.T) { wantRules(t, w.audit(), c.rule) })
	}

	// A leased worker loses its volume, which is to be destroyed: both rules are broken.
	w := newWorld(t)
	_, _, v := w.grantVolume("a", 0)
	v.Delete = true
	w.put(volumes(become(v, model.VolumeDestroying)))
	wantRules(t, w.audit(), RuleVolumeHome, RuleVolumeKept)
}
