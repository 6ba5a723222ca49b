package replay

import (
	"cmp"
	"slices"
	"strconv"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/pkg/resource"
)

// Batch is one batch of the trace.
type Batch struct {
	Key client.Key
	// First is the index of the first worker. Workers is the number of workers.
	First, Workers int32
	// Each has the resources that each worker requests.
	Each resource.Vector
	// Created is the second in which the batch is requested. Deleted is the second in which
	// the last of its instances is deleted, or never.
	Created, Deleted int64
}

// Request returns the reservation of the batch.
func (b *Batch) Request() *berthv1.Reservation {
	r := &berthv1.Reservation{
		Job: b.Key.Job, Stage: b.Key.Stage, Name: b.Key.Name,
		Constraints: &berthv1.Constraints{Resources: b.Each},
		Workers:     make([]*berthv1.WorkerID, b.Workers),
	}
	for i := range b.Workers {
		r.Workers[i] = &berthv1.WorkerID{Index: b.First + i, Number: 1}
	}
	return r
}

// Action is a request or a cancel of a batch in a second of the trace.
type Action struct {
	At     int64
	Batch  *Batch
	Cancel bool
}

// Plan has the batches of a trace and the actions in the order of their execution.
type Plan struct {
	Batches []*Batch
	Actions []Action
}

// NewPlan returns a plan with the first limit batches of the instances in order of
// creation, or with all batches if limit is 0. The name of each job begins with the
// prefix.
func NewPlan(instances []Instance, prefix string, limit int) *Plan {
	p := &Plan{}
	byKey := map[client.Key]*Batch{}
	for _, i := range instances {
		created := max(i.Created, 0)
		key := client.Key{Job: prefix + i.App, Stage: i.Role, Name: strconv.FormatInt(created, 10)}
		b := byKey[key]
		if b == nil {
			b = &Batch{Key: key, Created: created, Each: resource.Vector{}}
			byKey[key] = b
			p.Batches = append(p.Batches, b)
		}
		b.add(i)
	}
	slices.SortStableFunc(p.Batches, func(a, b *Batch) int { return cmp.Compare(a.Created, b.Created) })
	if limit > 0 && limit < len(p.Batches) {
		p.Batches = p.Batches[:limit]
	}
	p.number()
	p.schedule()
	return p
}

// add adds an instance as a worker of the batch.
func (b *Batch) add(i Instance) {
	for name, amount := range i.Each {
		b.Each[name] = max(b.Each[name], amount)
	}
	switch {
	case b.Workers == 0:
		b.Deleted = i.Deleted
	case b.Deleted == never || i.Deleted == never:
		b.Deleted = never
	default:
		b.Deleted = max(b.Deleted, i.Deleted)
	}
	b.Workers++
}

// number assigns a different index to each worker of a stage.
func (p *Plan) number() {
	type stage struct{ job, stage string }
	next := map[stage]int32{}
	for _, b := range p.Batches {
		at := stage{b.Key.Job, b.Key.Stage}
		b.First = next[at]
		next[at] += b.Workers
	}
}

// schedule orders the actions. Within a second, cancels come before requests, to free
// capacity. The cancel of a batch that is requested in the same second comes last.
func (p *Plan) schedule() {
	for _, b := range p.Batches {
		p.Actions = append(p.Actions, Action{At: b.Created, Batch: b})
		if b.Deleted != never {
			p.Actions = append(p.Actions, Action{At: max(b.Created, b.Deleted), Batch: b, Cancel: true})
		}
	}
	priority := func(a Action) int {
		switch {
		case a.Cancel && a.At > a.Batch.Created:
			return 0
		case !a.Cancel:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(p.Actions, func(a, b Action) int {
		return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(priority(a), priority(b)))
	})
}

// Jobs returns the jobs of the plan in order of their first batch.
func (p *Plan) Jobs() []string {
	var jobs []string
	seen := map[string]bool{}
	for _, b := range p.Batches {
		if !seen[b.Key.Job] {
			seen[b.Key.Job] = true
			jobs = append(jobs, b.Key.Job)
		}
	}
	return jobs
}

// Workers returns the number of workers of all batches.
func (p *Plan) Workers() int {
	n := 0
	for _, b := range p.Batches {
		n += int(b.Workers)
	}
	return n
}
