package inventory

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"berth.dev/pkg/model"
)

// VolumeView is a volume as reported.
type VolumeView struct {
	model.Volume
	Job, Stage string
	// Executor is the ID of its home; empty if the record of its home is unknown.
	Executor string
	// Worker is the number of the worker that is leased on it; 0 if there is none.
	Worker int32
	Wanted bool
	// KeptUntil is when it is deleted; zero if it is kept until that is requested.
	KeptUntil time.Time
	// Message says what it waits for; empty if it waits for nothing.
	Message string
}

// VolumeFilter selects volumes. A zero field selects all. Stage has no effect without Job.
type VolumeFilter struct {
	Job, Stage, Executor string
	State                model.VolumeState
}

// VolumePlace is the place of a volume in the order of the list.
type VolumePlace struct {
	Job, Stage string
	Index      int32
	ID         string
}

func (p VolumePlace) compare(o VolumePlace) int {
	return cmp.Or(strings.Compare(p.Job, o.Job), strings.Compare(p.Stage, o.Stage), cmp.Compare(p.Index, o.Index),
		strings.Compare(p.ID, o.ID))
}

// Place returns the place of the volume in the order of the list.
func (v *VolumeView) Place() VolumePlace { return VolumePlace{v.Job, v.Stage, v.Index, v.ID} }

// Volumes returns at most limit volumes after a place, in order of job, stage, index and ID,
// and reports whether there are more. Its cost is linear in the number of stages with
// volumes, and in the volumes from the first of them on.
func (c *Core) Volumes(f VolumeFilter, after VolumePlace, limit int) (list []VolumeView, more bool) {
	for _, key := range slices.SortedFunc(maps.Keys(c.stages), model.Key.Compare) {
		if key.Job < after.Job || key.Job == after.Job && key.Stage < after.Stage ||
			f.Job != "" && (key.Job != f.Job || f.Stage != "" && key.Stage != f.Stage) {
			continue
		}
		s := c.stages[key]
		for _, chunk := range slices.Sorted(maps.Keys(s.chunks)) {
			volumes := volumesOf(s.chunks[chunk])
			for i := range volumes {
				v := &volume{&volumes[i], key}
				if (VolumePlace{key.Job, key.Stage, v.Index, v.ID}).compare(after) <= 0 || !f.has(c, v) {
					continue
				}
				if len(list) == limit {
					return list, true
				}
				list = append(list, c.viewVolume(s, v))
			}
		}
	}
	return list, false
}

func (f VolumeFilter) has(c *Core, v *volume) bool {
	if f.State != model.VolumeUnset && f.State != v.State {
		return false
	}
	if f.Executor == "" {
		return true
	}
	h := c.home(v.Volume)
	return h != nil && h.ID == f.Executor
}

func (c *Core) viewVolume(s *stage, v *volume) VolumeView {
	view := VolumeView{Volume: *v.Volume, Job: v.stage.Job, Stage: v.stage.Stage,
		Wanted: v.State.Current() && s.wants(v.Index)}
	if h := c.home(v.Volume); h != nil {
		view.Executor = h.ID
	}
	if holders := s.holders[v.Index]; s.leased(v.Volume) {
		view.Worker = holders[len(holders)-1].number
	}
	if v.kept() {
		view.KeptUntil = v.keptUntil()
	}
	view.Message = c.volumeMessage(s, v)
	return view
}

// volumeMessage says what a volume waits for.
func (c *Core) volumeMessage(s *stage, v *volume) string {
	home, away := c.away(v.Volume)
	switch {
	case v.State == model.VolumeLost:
		return fmt.Sprintf("executor %s no longer lists it: it waits until the executor lists it, or until it is abandoned",
			c.homeName(v))
	case v.State == model.VolumeDestroying && home != nil && home.state == model.ExecutorReady:
		return fmt.Sprintf("executor %s has not confirmed yet that it destroyed the volume", home.ID)
	case v.State == model.VolumeDestroying && home != nil:
		return fmt.Sprintf("executor %s is %s: it destroys the volume once it is READY", home.ID, home.shown())
	case v.Delete && s.leased(v.Volume):
		return "it is deleted once its worker has ended"
	case v.State.Current() && s.wants(v.Index) && away != "":
		return away
	}
	return ""
}

// ExplainVolumes returns why a reservation with volumes would or would not be granted now;
// false for any other reservation.
func (c *Core) ExplainVolumes(uid string) (o model.Outcome, ok bool) {
	e := model.Candidate{UID: uid}
	if entry := c.reservations[uid]; entry != nil {
		e.Mod = entry.mod
	}
	if !c.complete(&e) || e.Volume == nil || malformedVolume(e) != "" {
		return o, false
	}
	_, _, o = c.fitVolumes(e)
	return o, true
}

// volumeStats counts the volumes by state, and sums what they hold by resource.
func (c *Core) volumeStats() (states map[model.VolumeState]int, held map[string]float64) {
	states, held = map[model.VolumeState]int{}, map[string]float64{}
	for _, v := range c.volumes {
		states[v.State]++
		for name, amount := range v.Holds() {
			held[name] += float64(amount)
		}
	}
	return states, held
}
