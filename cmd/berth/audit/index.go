package audit

import (
	"slices"

	"berth.dev/pkg/model"
)

// stage has the worker indexes of one stage that have or had workers.
type stage map[int32]*workerIndex

// workerIndex is one worker index of a stage.
type workerIndex struct {
	holders []holder // assignments that have not ended; more than one is a violation
	// requeued is the highest number that a requeue got before this revision.
	requeued int32
	// started is the last worker that was started. That worker may have ended.
	started holder
}

// holder is one worker of an index.
type holder struct {
	v        *version
	workerID model.WorkerID
}

func (a *Auditor) index(v *version, index int32) *workerIndex {
	key := model.Key{Job: v.key.Job, Stage: v.key.Stage}
	s := a.stages[key]
	if s == nil {
		s = stage{}
		a.stages[key] = s
	}
	at := s[index]
	if at == nil {
		at = &workerIndex{}
		s[index] = at
	}
	return at
}

// setNumbers applies the change of a stage's record.
func (a *Auditor) setNumbers(key model.Key, s *model.Stage) {
	if _, changed := a.step.numbers[key]; !changed {
		a.step.numbers[key] = a.numbers[key]
	}
	if s == nil {
		delete(a.numbers, key)
		return
	}
	a.numbers[key] = s.Numbers
}

// isUnused reports whether a worker ID was unused in the stage of a version before this
// revision.
func (a *Auditor) isUnused(v *version, workerID model.WorkerID) bool {
	key := model.Key{Job: v.key.Job, Stage: v.key.Stage}
	used, changed := a.step.numbers[key]
	if !changed {
		used = a.numbers[key]
	}
	highest, _ := used.Number(workerID.Index)
	return workerID.Number > highest
}

// begin records an assignment as a holder of its index, unless it has ended.
func (a *Auditor) begin(v *version, w *model.TaskWorker) {
	if w.State.Terminal() {
		return
	}
	s := a.index(v, w.ID.Index)
	s.holders = append(s.holders, holder{v, w.ID})
	a.step.begun = append(a.step.begun, s)
}

// end removes an assignment that begin has recorded.
func (a *Auditor) end(v *version, w *model.TaskWorker) {
	s := a.index(v, w.ID.Index)
	s.holders = slices.DeleteFunc(s.holders, func(h holder) bool { return h == holder{v, w.ID} })
}

// started records that an executor has started a worker. If another lease started the same
// worker before, started adds a violation.
func (a *Auditor) started(v *version, was model.WorkerState, w *model.TaskWorker) {
	if w.State == model.WorkerRunning {
		a.stats.WorkersRunning++
	}
	if w.State != model.WorkerStarting && w.State != model.WorkerRunning || was > model.WorkerAssigned {
		return
	}
	s := a.index(v, w.ID.Index)
	if s.started.v != nil && s.started.v != v && s.started.workerID == w.ID {
		a.stats.StartedTwice++
		a.violate(RuleStartedTwice, "worker %s of %s was started by %s already", w.ID, v, s.started.v)
	}
	s.started = holder{v, w.ID}
}

// forgetStage resets the worker numbers of a stage. The registry resets them when the job's
// last record is deleted.
func (a *Auditor) forgetStage(key model.Key) {
	s := a.stages[key]
	for index, at := range s {
		at.started, at.requeued = holder{}, 0
		if len(at.holders) == 0 {
			delete(s, index)
		}
	}
	if len(s) == 0 {
		delete(a.stages, key)
	}
}

// lastRecordDeleted reports whether this revision deletes every reservation of the job that
// existed before it. The registry then deletes the job's stages. If the same transaction
// accepts a new reservation of a stage, the store shows only one put of the stage record.
// The worker numbers of that stage restart as well.
func (a *Auditor) lastRecordDeleted(job string) bool {
	deleted := slices.ContainsFunc(a.step.touched, func(v *version) bool {
		return v.key.Job == job && v.was != nil && v.r == nil
	})
	if !deleted {
		return false
	}
	for _, v := range a.versions {
		if v.key.Job == job && v.before() != nil && v.r != nil {
			return false
		}
	}
	return true
}

// checkIndexes checks the worker indexes that got an assignment. The assignment must be the
// only unfinished assignment of its worker and of its index. There are two exceptions: a job
// service may use an index under two reservation names, and it may request a new worker
// while the worker that it cancelled is being stopped.
func (a *Auditor) checkIndexes() {
	for _, s := range a.step.begun {
		if len(s.holders) < 2 {
			continue
		}
		last, other := s.holders[len(s.holders)-1], s.holders[len(s.holders)-2]
		rule := RuleOnePerIndex
		switch {
		case last.workerID == other.workerID:
			rule = RuleOneAssignment
		case last.v.key != other.v.key, other.v.stopping(other.workerID):
			continue
		}
		a.violate(rule, "number %d of %s is assigned while number %d of %s has not ended", last.workerID.Number, last.v,
			other.workerID.Number, other.v)
	}
}
