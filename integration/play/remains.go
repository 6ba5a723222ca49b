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

// gone waits until no worker program runs and no worker is leased or assigned. Then it
// shows the records of a job that stay readable for a while.
func (p *player) gone(w *words) (string, error) {
	job := w.next("job")
	if err := w.problem(); err != nil {
		return "", err
	}
	var programs int
	var kept, held []string
	err := p.Until(func() bool {
		var err error
		if programs, err = p.Programs(); err != nil {
			return false
		}
		kept, held, err = p.remains(job)
		return err == nil && programs == 0 && len(held) == 0
	})
	if err != nil {
		return fmt.Sprintf("%v: %d programs run, and there are %v", err, programs, held), nil
	}
	return lines(kept, func(line string) string { return line }), nil
}

// remains reads two kinds of records from the store: the records of a job that stay
// readable for a while, and the records of all jobs that use executors.
func (p *player) remains(job string) (kept, held []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, space := p.Store()
	all, _, err := store.Range(ctx, s, space.Prefix())
	if err != nil {
		return nil, nil, err
	}
	of := map[string]bool{}
	for _, kv := range all {
		ref, _ := space.Parse(kv.Key)
		switch {
		case strings.HasPrefix(kv.Key, space.JobEvents(job)):
			of["events"] = true
		case ref.Kind == model.KindReservation && ref.Key.Job == job:
			of["reservation "+keyText(job, ref.Key.Stage, ref.Key.Name)] = true
		case ref.Kind == model.KindStage && ref.Key.Job == job:
			of["stage "+job+"/"+ref.Key.Stage] = true
		case ref.Kind == model.KindLeaseChunk, ref.Kind == model.KindTaskHeader, ref.Kind == model.KindTaskChunk:
			held = append(held, kv.Key)
		}
	}
	return slices.Sorted(maps.Keys(of)), held, nil
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
