package play

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
)

// remaining waits until no program runs and nothing is leased or assigned. Then it shows the
// records of a job that Berth keeps for a while.
func (p *player) remaining(w *words) (string, error) {
	job := w.next("job")
	if err := w.problem(); err != nil {
		return "", err
	}
	var programs int
	var kept, active []string
	err := p.Until(func() bool {
		var err error
		if programs, err = p.Programs(); err != nil {
			return false
		}
		kept, active, err = p.records(job)
		return err == nil && programs == 0 && len(active) == 0
	})
	if err != nil {
		return fmt.Sprintf("%v: %d programs run, records left: %v", err, programs, active), nil
	}
	return lines(kept, func(line string) string { return line }), nil
}

// records reads the store: the kept records of a job, and the lease and task records of all
// jobs.
func (p *player) records(job string) (kept, active []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, space := p.Store()
	all, _, err := store.Range(ctx, s, space.Prefix())
	if err != nil {
		return nil, nil, err
	}
	found := map[string]bool{}
	for _, kv := range all {
		ref, _ := space.Parse(kv.Key)
		switch {
		case strings.HasPrefix(kv.Key, space.JobEvents(job)):
			found["events"] = true
		case ref.Kind == model.KindReservation && ref.Key.Job == job:
			found["reservation "+keyText(job, ref.Key.Stage, ref.Key.Name)] = true
		case ref.Kind == model.KindStage && ref.Key.Job == job:
			found["stage "+job+"/"+ref.Key.Stage] = true
		case ref.Kind == model.KindLeaseChunk, ref.Kind == model.KindTaskHeader, ref.Kind == model.KindTaskChunk:
			active = append(active, kv.Key)
		}
	}
	return slices.Sorted(maps.Keys(found)), active, nil
}

// clearQuarantine declares all workers of an executor that are being stopped dead.
func (p *player) clearQuarantine(w *words) (string, error) {
	request := &berthv1.ClearQuarantineRequest{Executor: w.next("id"), RequestId: p.requestID()}
	if err := w.problem(); err != nil {
		return "", err
	}
	on, refused := call(p, p.assignments.ListAssignments, &berthv1.ListAssignmentsRequest{Executor: request.Executor,
		PageSize: 1000})
	for _, a := range on.GetAssignments() {
		request.Workers = append(request.Workers, &berthv1.AssignedWorker{
			Job: a.GetJob(), Stage: a.GetStage(), Index: a.GetIndex(), Number: a.GetNumber(), Epoch: a.GetEpoch(),
		})
	}
	if refused == nil {
		var answer *berthv1.ClearQuarantineAnswer
		if answer, refused = call(p, p.assignments.ClearQuarantine, request); refused == nil {
			return fmt.Sprintf("cleared %d", answer.GetCleared()), nil
		}
	}
	return refusal(refused), nil
}
