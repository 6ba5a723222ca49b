package queue

import (
	"cmp"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/services/registry/request"
)

var _ model.QuarantineCore = (*Core)(nil)

// quarantine holds the stages and versions that the core must not touch. A quarantined
// version may have workers, numbers or a place that other versions of its stage depend
// on, so its whole stage stays as it is. No version of the stage is tried, dispatched,
// ended or forgotten, and no request changes it.
type quarantine struct {
	stages map[model.Key]bool
	uids   map[string]bool // versions whose stages may be unknown yet
}

// quarantineStage quarantines the stage of a record.
func (c *Core) quarantineStage(ref model.Ref) {
	switch ref.Kind {
	case model.KindReservation, model.KindStage:
		c.quarantine.stages[stageKey(ref.Key)] = true
	case model.KindLeaseChunk, model.KindTaskHeader, model.KindTaskChunk, model.KindOffer:
		c.quarantine.uids[ref.ID] = true
	}
}

// applyQuarantine removes the quarantined versions from every index on which decisions
// are based.
func (c *Core) applyQuarantine() {
	for uid := range c.quarantine.uids {
		if v := c.versions[uid]; v != nil && v.r != nil {
			c.quarantineStage(v.r.Ref())
		}
	}
	if len(c.quarantine.stages) == 0 {
		return // do not visit all versions: a failover must stay fast
	}
	for _, v := range c.versions {
		if c.isQuarantined(v) {
			c.update(v, func() {})
		}
	}
}

func (c *Core) isQuarantined(v *version) bool {
	return c.quarantine.uids[v.uid] || v.r != nil && c.quarantine.stages[stageKey(v.r.Key)]
}

// hasQuarantine reports whether a stage of a job is quarantined.
func (c *Core) hasQuarantine(job string) bool {
	for key := range c.quarantine.stages {
		if key.Job == job {
			return true
		}
	}
	return false
}

// checkQuarantine rejects a request for a quarantined stage, or for a job that has one.
func (c *Core) checkQuarantine(in any) error {
	stage := stageKey(request.Scope(in))
	if c.quarantine.stages[stage] || stage.Stage == "" && c.hasQuarantine(stage.Job) {
		return fault.New(fault.Internal, fault.ReasonPoison,
			"a record of %s/%s is quarantined, so its stage cannot be changed: see the findings", stage.Job, stage.Stage)
	}
	return nil
}

// Subject implements model.QuarantineCore.
func (c *Core) Subject() model.Ref { return cmp.Or(c.subject, c.scheduler.Subject) }

// CanMiss implements model.QuarantineCore. Without the ready mark the registry becomes ready
// again as its configuration says, and writes another mark.
func (c *Core) CanMiss(model.Ref) bool { return true }
