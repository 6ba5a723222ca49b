package show

import (
	"fmt"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

// Volumes returns the table of volumes and their executors.
func Volumes(list []*berthv1.Volume, now time.Time, wide bool) *Table {
	t := table("VOLUME", "INDEX", "STATE", "SIZE", "EXECUTOR", "SINCE", "MESSAGE").more(wide, "ROLE", "HELD", "WORKER",
		"WANTED", "KEPT-UNTIL")
	for _, v := range list {
		t.add(v.GetId(), fmt.Sprintf("%s/%s/%d", v.GetJob(), v.GetStage(), v.GetIndex()), volumeState(v),
			v.GetResource()+" "+amount(v.GetResource(), v.GetAmount()), v.GetExecutor(), since(v.GetSince(), now),
			v.GetMessage(),
			v.GetRole(), resources(v.GetHeld()), number(v.GetWorker()), yes(v.GetWanted()), keptUntil(v, now))
	}
	return t
}

// volumeState returns the state of a volume. DELETING means that its deletion was requested
// and has not begun.
func volumeState(v *berthv1.Volume) string {
	text := state(v.GetState())
	if v.GetDeleteRequested() && v.GetState() != berthv1.Volume_DESTROYING {
		text += ",DELETING"
	}
	return text
}

func keptUntil(v *berthv1.Volume, now time.Time) string {
	if v.GetKeptUntil() == nil {
		return ""
	}
	return until(v.GetKeptUntil(), now)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// Plan returns the table of a plan. The volumes that are left of an index have no state.
func Plan(plan *client.Plan) *Table {
	t := table("WORKER", "TARGET", "BOUND", "PERSISTENT", "SATISFIED", "CURRENT", "EXECUTOR", "VOLUME", "WHY")
	for _, s := range plan.Stages {
		target := ""
		if s.Target > 0 {
			target = number(s.Target)
		}
		for _, w := range s.Workers {
			volume, why := w.Volume, w.Reason
			if w.VolumeState != "" && w.VolumeState != berthv1.Volume_READY.String() {
				volume += " " + w.VolumeState
			}
			if w.Message != "" && why != "" {
				why += ": "
			}
			t.add(fmt.Sprintf("%s/%d", s.Stage, w.Index), target, yes(w.Bound), yes(w.Persistent), yes(w.Satisfied),
				w.Current, w.Executor, volume, why+w.Message)
		}
	}
	return t
}
