package play

import (
	"fmt"
	"slices"
	"strings"
	"time"

	berthv1 "berth.dev/api/berth/v1"
)

// within plays the command that follows the duration. If limits of time apply and the command
// takes longer, the output says so.
func (p *player) within(w *words) (string, error) {
	limit := w.duration(w.next("duration"))
	name := w.next("command")
	command := commands[name]
	if command == nil {
		return "", fmt.Errorf("unknown command %q", name)
	}
	began := p.Now()
	output, err := command(p, w)
	if took := p.Now().Sub(began); p.Timely() && took > limit {
		output = fmt.Sprintf("%s\nit took %v", output, took.Round(time.Millisecond))
	}
	return output, err
}

// elapsed compares the time between two events of workers of a stage, in the form
// RUNNING:0.1, with limits. The upper limit applies if limits of time apply.
func (p *player) elapsed(w *words) (string, error) {
	job, stage, _ := strings.Cut(w.next("job/stage"), "/")
	least, most := w.duration(w.text("least")), w.duration(w.text("most"))
	var times [2]time.Time
	var ends [2]func(*berthv1.Event) bool
	for i, name := range []string{"from", "to"} {
		kind, workers, _ := strings.Cut(w.text(name), ":")
		worker := w.workers(workers)
		if _, ok := berthv1.Event_Kind_value["WORKER_"+kind]; !ok || len(worker) != 1 {
			return "", fmt.Errorf("%s=%s: must be KIND:INDEX.NUMBER", name, w.text(name))
		}
		ends[i] = func(e *berthv1.Event) bool {
			return e.GetStage() == stage && e.GetKind().String() == "WORKER_"+kind &&
				slices.ContainsFunc(e.GetWorkers(), func(of *berthv1.EventWorker) bool {
					return of.GetIndex() == worker[0].GetIndex() && of.GetNumber() == worker[0].GetNumber()
				})
		}
	}
	if err := w.problem(); err != nil {
		return "", err
	}
	err := p.Follow(job, func(e *berthv1.Event) bool {
		for i, isEnd := range ends {
			if times[i].IsZero() && isEnd(e) {
				times[i] = e.GetTime().AsTime()
			}
		}
		return !times[0].IsZero() && !times[1].IsZero()
	})
	if err != nil {
		return err.Error(), nil
	}
	if took := times[1].Sub(times[0]); took < least || p.Timely() && took > most {
		return fmt.Sprintf("it took %v", took.Round(time.Millisecond)), nil
	}
	return "ok", nil
}
