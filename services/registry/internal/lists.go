package internal

import (
	"cmp"
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/replica"
	"berth.dev/pkg/wire"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// ListReservations implements berth.v1.Reservations.
func (s *Reservations) ListReservations(ctx context.Context,
	req *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	if req.GetGroup() != "" {
		return s.listQueue(ctx, req)
	}
	if req.GetVersions() && req.GetJob() == "" {
		return nil, fault.BadField(fault.ReasonRequired, "job", "must be set: versions are listed for one job")
	}
	if req.GetReservation() != "" && (req.GetJob() == "" || req.GetStage() == "") {
		return nil, fault.BadField(fault.ReasonInvalid, "reservation", "requires job and stage")
	}
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	after, uid, err := parseToken(req.GetPageToken(), req.GetVersions())
	if err != nil {
		return nil, err
	}
	state, err := wire.ListedState[model.State](req.GetState())
	if err != nil {
		return nil, err
	}
	filter := queue.Filter{Job: req.GetJob(), Stage: req.GetStage(), Name: req.GetReservation(), State: state}
	// Read the revision first: the core then knows every write up to it, and perhaps later ones.
	revision := s.loop.Status().Revision
	answer := &berthv1.ListReservationsAnswer{Revision: revision, Cursor: wire.CursorOf(revision)}
	err = s.loop.Read(ctx, false, func(c *queue.Core) {
		var views []queue.View
		var more bool
		if req.GetVersions() {
			views, more = c.Versions(filter, after, uid, size)
		} else {
			views, more = c.List(filter, after, size)
		}
		if req.GetVersions() && req.GetPageToken() == "" {
			for _, stage := range c.Stages(filter.Job, filter.Stage) {
				answer.Stages = append(answer.Stages, &berthv1.StageWorkers{Stage: stage.Stage,
					Workers: wire.WorkerIDs(stage.Numbers), TargetSize: stage.TargetSize})
			}
		}
		answer.Reservations = replica.Page(views, replica.PageBytes-proto.Size(answer),
			func(v queue.View) *berthv1.Reservation {
				return shown(v, !req.GetVersions())
			})
		if n := len(answer.Reservations); more || n < len(views) {
			answer.NextPageToken = tokenOf(views[n-1].Reservation, req.GetVersions())
		}
	})
	return answer, err
}

// listQueue lists the queue of a group. The token of a page is the place of its last
// reservation, so a later page begins there although the queue has changed.
func (s *Reservations) listQueue(ctx context.Context,
	req *berthv1.ListReservationsRequest) (*berthv1.ListReservationsAnswer, error) {
	for _, other := range []struct {
		field string
		set   bool
	}{{"job", req.GetJob() != ""}, {"stage", req.GetStage() != ""}, {"reservation", req.GetReservation() != ""},
		{"versions", req.GetVersions()}} {
		if other.set {
			return nil, fault.BadField(fault.ReasonInvalid, other.field, "must not be set together with group")
		}
	}
	state, err := wire.ListedState[model.State](req.GetState())
	if err != nil {
		return nil, err
	}
	if state != model.StateUnset && state != model.Queued {
		return nil, fault.BadField(fault.ReasonInvalid, "state", "must be QUEUED or unset together with group, got %s", state)
	}
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	var last *model.Reservation
	if token := req.GetPageToken(); token != "" {
		place, valid := scheduler.ParsePlace(token)
		if !valid {
			return nil, badToken()
		}
		last = place
	}
	revision := s.loop.Status().Revision // first, as in ListReservations
	answer := &berthv1.ListReservationsAnswer{Revision: revision, Cursor: wire.CursorOf(revision)}
	err = s.loop.Read(ctx, false, func(c *queue.Core) {
		views, more := c.Queue(req.GetGroup(), state, last, size)
		answer.Reservations = replica.Page(views, replica.PageBytes,
			func(v queue.View) *berthv1.Reservation { return shown(v, true) })
		if n := len(answer.Reservations); more || n < len(views) {
			answer.NextPageToken = scheduler.PlaceOf(views[n-1].Reservation)
		}
	})
	return answer, err
}

// ListPending implements berth.v1.Reservations.
func (s *Reservations) ListPending(ctx context.Context, req *berthv1.ListPendingRequest) (*berthv1.ListPendingAnswer,
	error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	now := time.Now()
	var refused error
	answer := &berthv1.ListPendingAnswer{Ready: true, Revision: s.loop.Status().Revision}
	err = s.loop.Read(ctx, false, func(c *queue.Core) {
		var groups []queue.PendingGroup
		var more bool
		if groups, more, refused = c.Pending(req.GetPageToken(), size); refused != nil {
			return
		}
		depth, _ := c.Depth(now)
		answer.TotalGroups, answer.TotalReservations = clamp(depth.Groups), clamp(depth.Reservations)
		answer.TotalWorkers = clamp(depth.Workers)
		answer.Groups = replica.Page(groups, replica.PageBytes,
			func(g queue.PendingGroup) *berthv1.PendingGroup { return pendingGroup(g, now) })
		if n := len(answer.Groups); more || n < len(groups) {
			answer.NextPageToken = groups[n-1].ID
		}
	})
	if err = cmp.Or(err, refused); err != nil {
		return nil, err
	}
	return answer, nil
}

func pendingGroup(g queue.PendingGroup, now time.Time) *berthv1.PendingGroup {
	return &berthv1.PendingGroup{
		Id: g.ID, Constraints: wire.Constraints(g.Constraints), Reservations: clamp(g.Reservations),
		Workers: clamp(g.Workers), Head: wire.Key(g.Head), HeadAge: age(now, g.HeadSince), Reason: string(g.Reason),
		Message: g.Message, Avoided: wire.Avoided(model.AvoidedAt(g.Failed, now)),
	}
}

// ListJobs implements berth.v1.Reservations.
func (s *Reservations) ListJobs(ctx context.Context, req *berthv1.ListJobsRequest) (*berthv1.ListJobsAnswer, error) {
	size, err := replica.PageSize(req.GetPageSize())
	if err != nil {
		return nil, err
	}
	prefix, after := req.GetPrefix(), req.GetPageToken()
	switch {
	case prefix != "" && !model.ValidName(prefix, identity.MaxName):
		return nil, fault.BadField(fault.ReasonBadName, "prefix", "must be the prefix of a name, got %.128q", prefix)
	case after != "" && !model.ValidName(after, identity.MaxName):
		return nil, badToken()
	}
	if prefix, err = prefixFor(access.CallerIn(ctx).Identity, prefix); err != nil {
		return nil, err
	}
	answer := &berthv1.ListJobsAnswer{Revision: s.loop.Status().Revision}
	err = s.loop.Read(ctx, false, func(c *queue.Core) {
		jobs, more := c.Jobs(prefix, after, size)
		answer.Jobs = replica.Page(jobs, replica.PageBytes, jobOf)
		if n := len(answer.Jobs); more || n < len(jobs) {
			answer.NextPageToken = jobs[n-1].Name
		}
	})
	return answer, err
}

// prefixFor returns the prefix of the jobs that a caller gets. A job service that requests
// no prefix gets its own jobs.
func prefixFor(caller *identity.Identity, prefix string) (string, error) {
	switch {
	case caller == nil || caller.Role != identity.Job:
		return prefix, nil
	case prefix == "":
		return caller.Name, nil
	case !caller.CoversJob(prefix):
		return "", fault.New(fault.Denied, fault.ReasonPermissionDenied,
			"prefix: the caller %v may list only jobs that the prefix %q covers, got %q", caller, caller.Name, prefix)
	}
	return prefix, nil
}

func jobOf(j queue.Job) *berthv1.Job {
	return &berthv1.Job{
		Name: j.Name, Reservations: clamp(j.Reservations), PendingReservations: clamp(j.PendingReservations),
		DelayedReservations: clamp(j.DelayedReservations), DelayedWorkers: clamp(j.DelayedWorkers),
		PendingWorkers: clamp(j.PendingWorkers), ReservedWorkers: clamp(j.ReservedWorkers),
		RunningWorkers: clamp(j.RunningWorkers), StoppingWorkers: clamp(j.StoppingWorkers),
		LastActivity: wire.Timestamp(j.LastActivity),
	}
}

// tokenOf returns the page token of the last reservation of a page: its key, and in a
// list of versions also its UID. Names in a key have no slash.
func tokenOf(r *model.Reservation, versions bool) string {
	if versions {
		return r.Key.String() + "/" + r.UID
	}
	return r.Key.String()
}

func parseToken(token string, versions bool) (after model.Key, uid string, err error) {
	if token == "" {
		return model.Key{}, "", nil
	}
	parts := strings.Split(token, "/")
	if versions && len(parts) == 4 {
		parts, uid = parts[:3], parts[3]
	}
	if len(parts) != 3 || versions != (uid != "") {
		return model.Key{}, "", badToken()
	}
	return model.Key{Job: parts[0], Stage: parts[1], Name: parts[2]}, uid, nil
}

func badToken() error {
	return fault.BadField(fault.ReasonInvalid, "pageToken", "must be the nextPageToken of an earlier page")
}
