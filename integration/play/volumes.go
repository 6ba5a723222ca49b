package play

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// volumes waits until each named worker index of a job has volumes in exactly these states
// (0=READY 1=ABANDONED,READY 2=none), and lists the volumes of the job.
func (p *player) volumes(w *words) (string, error) {
	job, states := w.next("job"), w.equations()
	var last string
	err := p.Until(func() bool {
		list, refused := p.volumesOf(job)
		if refused != nil {
			last = refusal(refused)
			return false
		}
		last = lines(list, volumeText)
		return !slices.ContainsFunc(states, func(equation string) bool {
			index, wanted, _ := strings.Cut(equation, "=")
			var states []string
			for _, v := range list {
				if fmt.Sprint(v.GetIndex()) == index {
					states = append(states, v.GetState().String())
				}
			}
			slices.Sort(states)
			return cmp.Or(strings.Join(states, ","), "none") != wanted
		})
	})
	if err != nil {
		return fmt.Sprintf("%v:\n%s", err, last), nil
	}
	return sorted(last), nil
}

func (p *player) volumesOf(job string) ([]*berthv1.Volume, *fault.Error) {
	answer, refused := call(p, p.volumesClient.ListVolumes, &berthv1.ListVolumesRequest{Job: job, PageSize: 1000})
	return answer.GetVolumes(), refused
}

// volumeText shows a volume without its ID.
func volumeText(v *berthv1.Volume) string {
	text := fmt.Sprintf("%s/%s %d %s on %s", v.GetJob(), v.GetStage(), v.GetIndex(), v.GetState(), v.GetExecutor())
	if v.GetWanted() {
		text += " wanted"
	}
	if v.GetDeleteRequested() {
		text += " deleting"
	}
	return text
}

// current returns the volumes of a job that are the current ones of the indexes, or of all
// indexes without any.
func (p *player) current(job string, indexes []string) (list []*berthv1.Volume, refused *fault.Error) {
	all, refused := p.volumesOf(job)
	return slices.DeleteFunc(all, func(v *berthv1.Volume) bool {
		return len(indexes) > 0 && (!slices.Contains(indexes, strconv.Itoa(int(v.GetIndex()))) ||
			v.GetState() > berthv1.Volume_LOST)
	}), refused
}

// written shows which workers have written to the current volume of a worker index. A
// program writes just after it has started, so the command waits for a number of workers.
func (p *player) written(w *words) (string, error) {
	job, index, least := w.next("job"), w.next("index"), int(w.number("workers"))
	var text string
	err := p.Until(func() bool {
		list, refused := p.current(job, []string{index})
		if refused != nil || len(list) != 1 {
			text = fmt.Sprintf("%d volumes", len(list))
			return false
		}
		ids, err := p.Written(list[0].GetExecutor(), list[0].GetId())
		text = strings.Join(ids, " ")
		return err == nil && len(ids) >= least
	})
	if err != nil {
		return fmt.Sprintf("%v: %s", err, text), nil
	}
	return text, nil
}

// deleteVolumes deletes the current volumes of worker indexes of a job, or without indexes all
// its volumes.
func (p *player) deleteVolumes(w *words) (string, error) {
	job := w.next("job")
	list, refused := p.current(job, w.rest())
	if refused != nil {
		return refusal(refused), nil
	}
	answer, refused := call(p, p.volumesClient.DeleteVolumes, &berthv1.DeleteVolumesRequest{Job: job, Ids: idsOf(list)})
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("deleting %d", answer.GetCount()), nil
}

// deleteUnknown deletes a volume that an executor lists and that no record names.
func (p *player) deleteUnknown(w *words) (string, error) {
	answer, refused := call(p, p.volumesClient.DeleteVolumes, &berthv1.DeleteVolumesRequest{Executor: w.next("executor"),
		Ids: []string{w.next("volume")}})
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("deleting %d", answer.GetCount()), nil
}

// abandon abandons the current volumes of worker indexes of a job.
func (p *player) abandon(w *words) (string, error) {
	list, refused := p.current(w.next("job"), w.rest())
	if refused != nil {
		return refusal(refused), nil
	}
	answer, refused := call(p, p.volumesClient.AbandonVolumes, &berthv1.AbandonVolumesRequest{Ids: idsOf(list)})
	if refused != nil {
		return refusal(refused), nil
	}
	return fmt.Sprintf("abandoned %d", answer.GetCount()), nil
}

func idsOf(list []*berthv1.Volume) (ids []string) {
	for _, v := range list {
		ids = append(ids, v.GetId())
	}
	return ids
}

func (p *player) wipeVolumes(w *words) (string, error) { return "ok", p.WipeVolumes(w.next("id")) }

func (p *player) addVolume(w *words) (string, error) {
	return "ok", p.AddVolume(w.next("id"), w.next("name"))
}

// hasVolume waits until a host has the directory of a volume, or with no=yes, until it does
// not have it.
func (p *player) hasVolume(w *words) (string, error) {
	id, name, wanted := w.next("id"), w.next("name"), w.text("no") != "yes"
	if err := p.Until(func() bool { return p.HasVolume(id, name) == wanted }); err != nil {
		return err.Error(), nil
	}
	return "ok", nil
}
