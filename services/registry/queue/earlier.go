package queue

import (
	"slices"

	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

// earlierNumbers returns the numbers that a worker of a version had in earlier rounds, in ascending
// order. A number between two of them belongs to a worker of another reservation name.
func (c *Core) earlierNumbers(v *version, workerID model.WorkerID) []model.NumberRange {
	switch {
	case v.r.Round == 0:
		return nil
	case len(v.r.Earlier) > 0:
		return v.r.Earlier
	case len(v.r.EarlierOf) > 0:
		for _, e := range v.r.EarlierOf {
			if e.Workers.Has(workerID) {
				return e.Numbers
			}
		}
		return []model.NumberRange{{First: max(1, workerID.Number-v.r.Round), Last: workerID.Number - 1}}
	case v.r.Origin == model.OriginRequeue: // of an older Berth version: each round raised the number by one
		return []model.NumberRange{{First: max(1, workerID.Number-v.r.Round), Last: workerID.Number - 1}}
	}
	// A round has the round before it as its parent, which is kept.
	before := c.versions[v.r.Parent]
	if before == nil || before.r == nil || before.r.Round >= v.r.Round {
		return nil
	}
	number, ok := before.r.Workers.Number(workerID.Index)
	if !ok {
		return nil
	}
	return withNumber(c.earlierNumbers(before, model.WorkerID{Index: workerID.Index, Number: number}), number)
}

// earlierOf returns the earlier numbers of the workers of a round, joined for those with equal ones.
func earlierOf(workers []successor) (list []model.EarlierNumbers) {
	var ids [][]model.WorkerID
	for _, s := range workers {
		at := slices.IndexFunc(list, func(e model.EarlierNumbers) bool { return slices.Equal(e.Numbers, s.earlier) })
		if at < 0 {
			if len(list) == model.MaxEarlierOf {
				continue
			}
			at, list, ids = len(list), append(list, model.EarlierNumbers{Numbers: s.earlier}), append(ids, nil)
		}
		ids[at] = append(ids[at], s.id)
	}
	for i := range list {
		list[i].Workers = model.WorkerSetOf(ids[i])
	}
	return list
}

// withNumber adds a number above all others to ranges of numbers. It keeps the first range,
// because a job service knows the number that it requested, and the latest ones.
func withNumber(numbers []model.NumberRange, number int32) []model.NumberRange {
	numbers = slices.Clone(numbers)
	if n := len(numbers); n > 0 && numbers[n-1].Last == number-1 {
		numbers[n-1].Last = number
		return numbers
	}
	if len(numbers) >= model.MaxEarlier {
		numbers = slices.Delete(numbers, 1, 2)
	}
	return append(numbers, model.NumberRange{First: number, Last: number})
}

// current returns the worker of the version with this ID, or with this ID in an earlier
// round. Without a number it returns the worker of the index.
func (c *Core) current(v *version, workerID model.WorkerID) (model.WorkerID, bool) {
	number, ok := v.r.Workers.Number(workerID.Index)
	current := model.WorkerID{Index: workerID.Index, Number: number}
	if workerID.Number == request.NextNumber {
		return current, ok
	}
	if !ok || workerID.Number >= number {
		return current, ok && workerID.Number == number
	}
	return current, slices.ContainsFunc(c.earlierNumbers(v, current), func(n model.NumberRange) bool {
		return n.First <= workerID.Number && workerID.Number <= n.Last
	})
}
