package queue

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

var _ model.Holder = (*Core)(nil)

// held is what the core is to leave alone. A version that it must not touch may
// hold workers, numbers, or the place of others of its stage, so the whole stage
// is left as it is: nothing of it is tried, dispatched, ended or forgotten,
// and no call changes it.
type held struct {
	stages map[model.Key]bool
	uids   map[string]bool
}

// hold leaves a record's stage alone. Which one that is may be told later.
func (c *Core) hold(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindStage:
		if c.held.stages == nil {
			c.held.stages = map[model.Key]bool{}
		}
		c.held.stages[stageKey(ref.Key)] = true
	case model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk:
		if c.held.uids == nil {
			c.held.uids = map[string]bool{}
		}
		c.held.uids[ref.ID] = true
	}
}

// putAside takes what is held out of every index that decisions are made from.
func (c *Core) putAside() {
	for uid := range c.held.uids {
		if v := c.versions[uid]; v != nil && v.r != nil {
			c.hold(v.r.Ref())
		}
	}
	if len(c.held.stages) == 0 {
		return
	}
	for _, v := range c.versions {
		if c.holds(v) {
			c.update(v, func() {})
		}
	}
}

// holds says whether a version is left alone.
func (c *Core) holds(v *version) bool {
	return c.held.uids[v.uid] || v.r != nil && c.held.stages[stageKey(v.r.Key)]
}

// holdsOf says whether a stage of a job is left alone.
func (c *Core) holdsOf(job string) bool {
	for key := range c.held.stages {
		if key.Job == job {
			return true
		}
	}
	return false
}

// untouchable refuses a request about what is left alone; nil for any other.
func (c *Core) untouchable(request any) error {
	var stage model.Key
	switch r := request.(type) {
	case model.Upsert:
		stage = stageKey(r.Key)
	case Cancel:
		stage = stageKey(r.Key)
	case CancelWorkers:
		stage = model.Key{Job: r.Job, Stage: r.Stage}
	case CancelJob:
		stage.Job = r.Job
	case Flush:
		stage.Job = r.Job
	}
	if c.held.stages[stage] || stage.Stage == "" && c.holdsOf(stage.Job) {
		return fault.New(fault.Internal, fault.ReasonPoison, "a record of %s/%s is left alone, and nothing may be changed beside it: see the findings", stage.Job, stage.Stage)
	}
	return nil
}

// Subject implements model.Holder.
func (c *Core) Subject() model.Ref { return c.subject }

// CanMiss implements model.Holder. Without the ready mark the registry waits to be
// ready anew, as its configuration says, and writes another mark.
func (c *Core) CanMiss(model.Ref) bool { return true }
