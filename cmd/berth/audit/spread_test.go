package audit

import (
	"testing"

	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// SPREAD counts the leased workers of all versions of a reservation, and only where a lease adds
// workers.
func TestSpreadOfAReservation(t *testing.T) {
	gang := model.Key{Job: "job", Stage: "stage", Name: "gang"}
	version := func(uid string, place int64, n int32, k constraint.Constraints) *model.Reservation {
		r := reservation(uid, place, n)
		r.Key = gang
		r.Spec.Constraints.Spread, r.Spec.Constraints.SameShape = k.Spread, k.SameShape
		return r
	}
	one := constraint.Constraints{Spread: constraint.Spread{By: "executor", Max: 1}}
	two := constraint.Constraints{Spread: constraint.Spread{By: "executor", Max: 2}}
	rack := constraint.Constraints{Spread: constraint.Spread{By: "Rack", Max: 1}}
	same := constraint.Constraints{SameShape: true}
	grant := func(w *world, r *model.Reservation, on ...uint32) { w.put(lease(r, w.put(r), w.revision, on...)) }
	givenUp := func(w *world, r *model.Reservation, on uint32) {
		lost := task(w.run(r, on), model.WorkerLost)
		lost.Workers[0].Unconfirmed = true
		w.put(lost)
	}
	racked := func(ordinal uint32, name string) *model.Executor {
		e := host(ordinal, 4)
		e.Attributes = map[string]string{"rack": name}
		return e
	}
	for _, test := range []struct {
		name   string
		broken bool
		play   func(*world)
	}{
		{"two workers of one version on one executor", true, func(w *world) { grant(w, version("a", 1, 2, one), 1) }},
		{"a later version beside a worker", true, func(w *world) {
			w.run(version("a", 1, 1, one), 1)
			grant(w, version("b", 2, 1, one), 1)
		}},
		{"a later version on another executor", false, func(w *world) {
			w.run(version("a", 1, 1, one), 1)
			grant(w, version("b", 2, 1, one), 2)
		}},
		{"another reservation beside a worker", false, func(w *world) {
			w.run(version("a", 1, 1, one), 1)
			other := version("b", 2, 1, one)
			other.Key.Name = "other"
			grant(w, other, 1)
		}},
		{"after the end of the worker", false, func(w *world) {
			r := version("a", 1, 1, one)
			l := w.run(r, 1)
			w.put(task(l, model.WorkerFailed))
			w.put(deletion{l.Ref()})
			grant(w, version("b", 2, 1, one), 1)
		}},
		{"a worker on a LOST executor", false, func(w *world) {
			w.put(racked(1, "x"), racked(2, "X"))
			w.run(version("a", 1, 1, rack), 1)
			lost := racked(1, "x")
			lost.Lost = true
			w.put(lost)
			grant(w, version("b", 2, 1, rack), 2)
		}},
		{"a worker that was given up", false, func(w *world) {
			w.put(racked(1, "x"), racked(2, "X"))
			givenUp(w, version("a", 1, 1, rack), 1)
			grant(w, version("b", 2, 1, rack), 2)
		}},
		{"the shape of a worker that was given up", false, func(w *world) {
			w.put(host(3, 8))
			givenUp(w, version("a", 1, 1, same), 1)
			grant(w, version("b", 2, 1, same), 3)
		}},
		{"one rack", true, func(w *world) {
			w.put(racked(1, "x"), racked(2, "X"))
			w.run(version("a", 1, 1, rack), 1)
			grant(w, version("b", 2, 1, rack), 2)
		}},
		{"where an earlier version allowed more, nothing is added", true, func(w *world) {
			w.run(version("a", 1, 2, two), 1)
			grant(w, version("b", 2, 1, one), 1)
		}},
		{"an earlier version allowed more elsewhere", false, func(w *world) {
			w.run(version("a", 1, 2, two), 1)
			grant(w, version("b", 2, 1, one), 2)
		}},
		{"another shape", true, func(w *world) {
			w.put(host(3, 8))
			w.run(version("a", 1, 1, same), 1)
			grant(w, version("b", 2, 1, same), 3)
		}},
		{"the same shape", false, func(w *world) {
			w.run(version("a", 1, 1, same), 1)
			grant(w, version("b", 2, 1, same), 2)
		}},
		{"two versions in one transaction", true, func(w *world) {
			a, b := version("a", 1, 1, one), version("b", 2, 1, one)
			epochs := []int64{w.put(a), w.put(b)}
			w.put(lease(a, epochs[0], w.revision, 1), lease(b, epochs[1], w.revision, 1))
		}},
	} {
		w := newWorld(t)
		test.play(w)
		broken := false
		for _, v := range w.audit().Violations() {
			if broken = true; v.Rule != RuleSpread {
				t.Errorf("%s: %v", test.name, v)
			}
		}
		if broken != test.broken {
			t.Errorf("%s: a violation is reported: %v", test.name, broken)
		}
	}
}

// A volume keeps the shape of its executor: sameShape may follow it while no worker is leased there.
func TestShapesOfKeptVolumes(t *testing.T) {
	w := newWorld(t)
	w.put(host(3, 8))
	a := w.audit()
	chunk := &model.VolumeChunk{Job: "job", Stage: "stage", Volumes: []model.Volume{
		{ID: "kept", State: model.VolumeReady, Ordinal: 3}, {ID: "gone", State: model.VolumeAbandoned, Ordinal: 1},
	}}
	a.volumes[chunk.Ref()] = chunk
	for stage, want := range map[string]int{"stage": 1, "other": 0} {
		if shapes := a.keptShapes(model.Key{Job: "job", Stage: stage, Name: "main"}); len(shapes) != want {
			t.Errorf("%s: shapes %v, want %d", stage, shapes, want)
		}
	}
}
