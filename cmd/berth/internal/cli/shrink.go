package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/model"
)

// surplus returns the workers of a stage that an upsert with STOP_HIGHEST stops: those with the highest
// indexes that it does not request, until no more than its target size are left. own is how many of them
// belong to the reservation. Workers that Berth stops already do not count.
func surplus(ctx context.Context, c *client.Client, file model.Upsert) (stops []model.WorkerID, own int, err error) {
	if file.Spec.Shrink != model.ShrinkHighest {
		return nil, 0, nil
	}
	list, err := whole(&berthv1.ListReservationsRequest{Job: file.Key.Job, Stage: file.Key.Stage, Versions: true,
		PageSize: pageSize}, (*client.Client).ListPage)(c, ctx)
	if err != nil {
		return nil, 0, err
	}
	workers, err := whole(&berthv1.ListAssignmentsRequest{Job: file.Key.Job, Stage: file.Key.Stage, PageSize: pageSize},
		(*client.Client).AssignmentsPage)(c, ctx)
	if err != nil {
		return nil, 0, err
	}
	stopping := map[model.WorkerID]bool{}
	for _, w := range workers.GetAssignments() {
		if w.GetState() >= berthv1.Assignment_EVICT {
			stopping[model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}] = true
		}
	}
	requested := map[int32]bool{}
	for i := range file.Count {
		requested[i] = true
	}
	for _, w := range file.Workers {
		requested[w.Index] = true
	}
	kept, mine := 0, map[model.WorkerID]bool{}
	for _, r := range list.GetReservations() {
		of := client.KeyOf(r) == client.Key(file.Key)
		if client.Ended(r.GetState()) || of && r.GetState() == berthv1.Reservation_QUEUED {
			continue // the upsert replaces what it queued before
		}
		for _, w := range r.GetWorkers() {
			switch id := (model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}); {
			case stopping[id]:
			case of && requested[id.Index]:
				kept++
				delete(requested, id.Index)
			default:
				stops = append(stops, id)
				mine[id] = of
			}
		}
	}
	excess := max(kept+len(requested)+len(stops)-int(file.Spec.TargetSize), 0)
	slices.SortFunc(stops, func(a, b model.WorkerID) int { return b.Compare(a) })
	stops = stops[:min(excess, len(stops))]
	for _, id := range stops {
		if mine[id] {
			own++
		}
	}
	return stops, own, nil
}

// stopsText says which workers shrink stops; "" for none.
func stopsText(stops []model.WorkerID) string {
	if len(stops) == 0 {
		return ""
	}
	var names []string
	for _, id := range stops[:min(len(stops), maxListed)] {
		names = append(names, id.String())
	}
	text := fmt.Sprintf("shrink stops %d workers: %s", len(stops), strings.Join(names, ", "))
	if len(stops) == 1 {
		text = "shrink stops worker " + names[0]
	}
	if more := len(stops) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
