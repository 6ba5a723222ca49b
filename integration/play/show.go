package play

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
)

// keyText returns the key of a reservation in the form of the files.
func keyText(job, stage, name string) string {
	if name == model.MainName || name == "" {
		return job + "/" + stage
	}
	return job + "/" + stage + "/" + name
}

// workersText is the inverse of words.workers.
func workersText(workers []*berthv1.WorkerID) string {
	list := make([]model.WorkerID, len(workers))
	for i, s := range workers {
		list[i] = model.WorkerID{Index: s.GetIndex(), Number: s.GetNumber()}
	}
	return runsText(list)
}

func runsText(list []model.WorkerID) string {
	var parts []string
	for _, run := range model.WorkerSetOf(list) {
		if run.First == run.Last {
			parts = append(parts, fmt.Sprintf("%d.%d", run.First, run.Number))
			continue
		}
		parts = append(parts, fmt.Sprintf("%d-%d.%d", run.First, run.Last, run.Number))
	}
	return strings.Join(parts, ",")
}

// reservationText returns the fields of a reservation that are the same in both worlds.
func reservationText(r *berthv1.Reservation) string {
	words := []string{keyText(r.GetJob(), r.GetStage(), r.GetName()), r.GetState().String()}
	if len(r.GetWorkers()) > 0 {
		words = append(words, workersText(r.GetWorkers()))
	} else {
		words = append(words, fmt.Sprintf("%d workers", r.GetCount()))
	}
	for _, state := range slices.Sorted(maps.Keys(r.GetWorkerCounts())) {
		words = append(words, fmt.Sprintf("%s=%d", state, r.GetWorkerCounts()[state]))
	}
	if r.GetPosition() > 0 {
		words = append(words, fmt.Sprintf("position=%d", r.GetPosition()))
	}
	if r.GetRound() > 0 {
		words = append(words, fmt.Sprintf("round=%d", r.GetRound()))
	}
	if r.GetState() == berthv1.Reservation_HELD {
		words = append(words, fmt.Sprintf("rating=%d", r.GetRating()))
	}
	if r.GetReason() != "" {
		words = append(words, "reason="+r.GetReason())
	}
	return strings.Join(words, " ")
}

func executorText(e *berthv1.Executor) string {
	words := []string{e.GetId(), e.GetState().String(), fmt.Sprintf("workers=%d", e.GetWorkers())}
	for _, name := range slices.Sorted(maps.Keys(e.GetResources())) {
		if slices.Contains(resourceNames, name) {
			words = append(words, fmt.Sprintf("%s=%d/%d", name, e.GetUsed()[name], e.GetResources()[name]))
		}
	}
	if n := len(e.GetDisabled()); n > 0 {
		words = append(words, fmt.Sprintf("disabled=%d", n))
	}
	if e.GetDraining() {
		words = append(words, "draining")
	}
	if e.GetSkippedUntil() != nil {
		words = append(words, "skipped=yes")
	}
	return strings.Join(words, " ")
}

func constraintsText(c *berthv1.Constraints) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(c.GetResources())) {
		words = append(words, fmt.Sprintf("%s=%d", name, c.GetResources()[name]))
	}
	if c.GetSku() != "" {
		words = append(words, "sku="+c.GetSku())
	}
	for _, name := range slices.Sorted(maps.Keys(c.GetAttributes())) {
		words = append(words, name+"="+c.GetAttributes()[name])
	}
	return strings.Join(words, " ")
}
