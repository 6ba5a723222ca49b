package client

import (
	"cmp"
	"context"
	"maps"
	"slices"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// Plan compares what a job requests with what it has, for each worker index.
type Plan struct {
	Job    string      `json:"job"`
	Stages []StagePlan `json:"stages"`
}

// StagePlan is the plan of a stage.
type StagePlan struct {
	Stage string `json:"stage"`
	// Target is the target size of the stage; 0 if it has none.
	Target int32 `json:"target"`
	// Workers has the worker indexes that are requested or have a volume, in order of index.
	// An index has several entries if several reservation names request it, or if volumes of
	// it are left.
	Workers []PlannedWorker `json:"workers"`
}

// PlannedWorker is the plan of a worker index.
type PlannedWorker struct {
	Index int32 `json:"index"`
	// Name is the name of the reservation that requests the worker, and Number the number of
	// the worker. They are not set for a volume whose index no reservation requests.
	Name   string `json:"name,omitempty"`
	Number int32  `json:"number,omitempty"`
	// Bound is set if the worker has an executor: it is leased or assigned and has not ended.
	Bound bool `json:"bound"`
	// Persistent is set if the index has a volume that its next worker uses.
	Persistent bool `json:"persistent"`
	// Satisfied is set if the worker is ASSIGNED, STARTING or RUNNING.
	Satisfied bool `json:"satisfied"`
	// Current is the state of the worker, or of its version of the reservation until the worker is
	// assigned.
	Current string `json:"current,omitempty"`
	// Executor is the ID of the executor of the worker, or else of the volume.
	Executor string `json:"executor,omitempty"`
	// Volume is the ID of the volume, and VolumeState its state.
	Volume      string `json:"volume,omitempty"`
	VolumeState string `json:"volumeState,omitempty"`
	// Reason and Message say why the worker is pending or has ended, or what the volume waits
	// for.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Plan derives the plan of a job from the lists of its reservations, workers and volumes. It
// has the newest worker of each index, also if it has ended, as long as the registry lists its
// reservation. The lists are read one after another, so a worker that changes meanwhile may be in its old or
// its new state. The error is NotFound if the job has none of them.
func (c *Client) Plan(ctx context.Context, job string) (*Plan, error) {
	l, err := c.readJob(ctx, job)
	if err != nil {
		return nil, err
	}
	var volumes []*berthv1.Volume
	for v, err := range c.Volumes(ctx, &berthv1.ListVolumesRequest{Job: job, PageSize: 1000}) {
		if err != nil {
			return nil, err
		}
		volumes = append(volumes, v)
	}
	if len(l.versions) == 0 && len(volumes) == 0 {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "job %s has neither reservations nor volumes", job)
	}
	var reservations []*berthv1.Reservation
	for r, err := range c.List(ctx, &berthv1.ListReservationsRequest{Job: job, PageSize: 1000}) {
		if err != nil {
			return nil, err
		}
		reservations = append(reservations, r)
	}
	return planOf(job, l, reservations, volumes), nil
}

// planID identifies an entry of a plan: a worker index that a reservation name requests.
type planID struct {
	stage, name string
	index       int32
}

func planOf(job string, l *listing, reservations []*berthv1.Reservation, volumes []*berthv1.Volume) *Plan {
	rows := map[planID]PlannedWorker{}
	shown := map[Key]*berthv1.Reservation{}
	for _, r := range reservations {
		shown[KeyOf(r)] = r
		for _, e := range r.GetEnds() {
			for _, w := range e.GetWorkers() {
				for index := w.GetFirst(); index <= w.GetLast(); index++ {
					row := PlannedWorker{Index: index, Name: r.GetName(), Number: w.GetNumber(), Current: e.GetState()}
					if e.GetGaveUp() {
						row.Reason = string(fault.ReasonRoundsExhausted)
					}
					rows[planID{r.GetStage(), r.GetName(), index}] = row
				}
			}
		}
	}
	for _, r := range l.versions {
		// Of a reservation that has ended, the version that represents it is shown.
		if of := shown[KeyOf(r)]; Ended(r.GetState()) && (of.GetUid() != r.GetUid() || !Ended(of.GetState())) {
			continue
		}
		for _, w := range r.GetWorkers() {
			id := planID{r.GetStage(), r.GetName(), w.GetIndex()}
			if w.GetNumber() > rows[id].Number { // a worker that is queued again has the next number
				rows[id] = plannedWorker(r, w)
			}
		}
	}
	for _, a := range l.assignments {
		id := planID{a.GetStage(), a.GetReservation(), a.GetIndex()}
		if row, planned := rows[id]; planned && row.Number == a.GetNumber() {
			row.assign(a)
			rows[id] = row
		}
	}
	dropOvertaken(job, rows, shown)
	return joinPlan(job, l, rows, volumes)
}

// dropOvertaken drops workers that have ended if another name of the stage has a later worker of the
// index, so the plan of a stage that moves from one name to another has each index once.
func dropOvertaken(job string, rows map[planID]PlannedWorker, shown map[Key]*berthv1.Reservation) {
	highest := map[planID]int32{}
	for id, row := range rows {
		of := planID{stage: id.stage, index: id.index}
		highest[of] = max(highest[of], row.Number)
	}
	maps.DeleteFunc(rows, func(id planID, row PlannedWorker) bool {
		state := berthv1.Assignment_State(berthv1.Assignment_State_value[row.Current])
		hasEnded := terminal(state) || Ended(shown[Key{job, id.stage, id.name}].GetState())
		return hasEnded && row.Number < highest[planID{stage: id.stage, index: id.index}]
	})
}

// plannedWorker returns the entry of a worker that has no executor yet.
func plannedWorker(r *berthv1.Reservation, w *berthv1.WorkerID) PlannedWorker {
	row := PlannedWorker{Index: w.GetIndex(), Name: r.GetName(), Number: w.GetNumber(), Current: r.GetState().String()}
	switch r.GetState() {
	case berthv1.Reservation_HELD, berthv1.Reservation_ASSIGNING, berthv1.Reservation_ACTIVE:
		row.Bound = true
	default:
		row.Reason, row.Message = r.GetReason(), r.GetMessage()
	}
	return row
}

// assign sets what an assignment says about the worker.
func (w *PlannedWorker) assign(a *berthv1.Assignment) {
	state := a.GetState()
	w.Current, w.Executor, w.Bound = state.String(), a.GetExecutor(), !terminal(state)
	w.Satisfied = state == berthv1.Assignment_ASSIGNED || state == berthv1.Assignment_STARTING ||
		state == berthv1.Assignment_RUNNING
	w.Reason, w.Message = a.GetReason(), a.GetLastError()
}

// joinPlan adds the volumes to the entries, and an entry for each volume that has none.
func joinPlan(job string, l *listing, rows map[planID]PlannedWorker, volumes []*berthv1.Volume) *Plan {
	current := map[planID]*berthv1.Volume{} // without names
	stages := map[string]*StagePlan{}
	stage := func(name string) *StagePlan {
		if stages[name] == nil {
			stages[name] = &StagePlan{Stage: name}
		}
		return stages[name]
	}
	for _, s := range l.stages {
		stage(s.GetStage()).Target = s.GetTargetSize()
	}
	var left []*berthv1.Volume
	for _, v := range volumes {
		switch v.GetState() {
		case berthv1.Volume_ABANDONED, berthv1.Volume_DESTROYING:
			left = append(left, v)
		default:
			current[planID{stage: v.GetStage(), index: v.GetIndex()}] = v
		}
	}
	used := map[*berthv1.Volume]bool{}
	for id, row := range rows {
		if v := current[planID{stage: id.stage, index: id.index}]; v != nil {
			used[v] = true
			row.join(v)
		}
		s := stage(id.stage)
		s.Workers = append(s.Workers, row)
	}
	for _, v := range current {
		if !used[v] {
			left = append(left, v)
		}
	}
	for _, v := range left {
		row := PlannedWorker{Index: v.GetIndex()}
		row.join(v)
		s := stage(v.GetStage())
		s.Workers = append(s.Workers, row)
	}
	plan := &Plan{Job: job, Stages: []StagePlan{}}
	for _, s := range stages {
		slices.SortFunc(s.Workers, func(a, b PlannedWorker) int {
			return cmp.Or(cmp.Compare(a.Index, b.Index), -cmp.Compare(a.Number, b.Number), cmp.Compare(a.Name, b.Name),
				cmp.Compare(a.Volume, b.Volume))
		})
		if len(s.Workers) > 0 || s.Target > 0 {
			plan.Stages = append(plan.Stages, *s)
		}
	}
	slices.SortFunc(plan.Stages, func(a, b StagePlan) int { return cmp.Compare(a.Stage, b.Stage) })
	return plan
}

// join sets what a volume says about the worker index.
func (w *PlannedWorker) join(v *berthv1.Volume) {
	state := v.GetState()
	w.Volume, w.VolumeState = v.GetId(), state.String()
	w.Persistent = state == berthv1.Volume_PLANNED || state == berthv1.Volume_READY
	w.Executor = cmp.Or(w.Executor, v.GetExecutor())
	if w.Reason == "" && w.Message == "" && !w.Satisfied {
		w.Message = v.GetMessage()
	}
}
