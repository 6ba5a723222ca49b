package wire

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
)

// UpsertOf converts a request to upsert. It ignores fields that only Berth sets, and a
// count that equals the number of listed workers. So a caller can send the answer to a
// read back unchanged. It refuses fields that are reserved for later versions with
// UNSUPPORTED. It refuses unknown enum values and a maxAttempts or queueTimeout of 0 with
// INVALID.
func UpsertOf(req *berthv1.UpsertReservationRequest) (model.Upsert, error) {
	r := req.GetReservation()
	if r == nil {
		return model.Upsert{}, fault.BadField(fault.ReasonRequired, "reservation", "is required")
	}
	if err := refuseUnsupported(r.ProtoReflect()); err != nil {
		return model.Upsert{}, err
	}
	u := model.Upsert{
		Key:     model.Key{Job: r.GetJob(), Stage: r.GetStage(), Name: r.GetName()},
		Count:   r.GetCount(),
		IfEpoch: req.GetIfEpoch(), RequestID: req.GetRequestId(),
	}
	if u.Key.Name == "" {
		u.Key.Name = model.MainName
	}
	if r.RequestId != nil {
		if u.RequestID != "" && u.RequestID != r.GetRequestId() {
			return model.Upsert{}, fault.BadField(fault.ReasonInvalid, "requestId", "is set twice, with different values")
		}
		u.RequestID = r.GetRequestId()
	}
	if r.IfEpoch != nil {
		if u.IfEpoch != 0 && u.IfEpoch != r.GetIfEpoch() {
			return model.Upsert{}, fault.BadField(fault.ReasonInvalid, "ifEpoch", "is set twice, with different values")
		}
		u.IfEpoch = r.GetIfEpoch()
	}
	if r.MaxAttempts != nil && r.GetMaxAttempts() == 0 { // the model cannot distinguish it from an unset one
		return model.Upsert{}, fault.BadField(fault.ReasonInvalid, "maxAttempts",
			"must be at least 1, since the first attempt counts")
	}
	if int(u.Count) == len(r.GetWorkers()) {
		u.Count = 0 // without a list of workers the count is 0 here too
	}
	for _, w := range r.GetWorkers() {
		u.Workers = append(u.Workers, model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()})
	}
	if err := checkEnums(r); err != nil {
		return model.Upsert{}, err
	}
	var err error
	u.Spec, err = specOf(r)
	u.Spec.Constraints.Defaults = nil
	if err == nil && r.QueueTimeout != nil &&
		u.Spec.QueueTimeout == 0 { // the model cannot distinguish it from an unset one
		err = fault.BadField(fault.ReasonInvalid, "queueTimeout",
			"must be longer than 0s; leave it out to wait without a limit")
	}
	return u, cmp.Or(err, checkStartTimeout(r.GetTask(), u.Spec.Task), notZero("expireAt", r.GetExpireAt()),
		notZero("notBefore", r.GetNotBefore()))
}

// checkEnums refuses values of enums that this version does not know.
func checkEnums(r *berthv1.Reservation) error {
	for _, field := range []struct {
		name  string
		value protoreflect.Enum
	}{
		{"batch", r.GetBatch()},
		{"start", r.GetStart()},
		{"onAssignmentFailure", r.GetOnAssignmentFailure()},
		{"priority.class", r.GetPriority().GetClass()},
		{"task.readiness", r.GetTask().GetReadiness()},
		{"hold", r.GetHold()},
	} {
		if err := checkEnum(field.name, field.value); err != nil {
			return err
		}
	}
	return nil
}

func checkEnum(field string, value protoreflect.Enum) error {
	if enum := value.Descriptor(); enum.Values().ByNumber(value.Number()) == nil {
		return fault.BadField(fault.ReasonInvalid, field, "must be one of %s, got %d",
			strings.Join(EnumNames(enum), ", "), value.Number())
	}
	return nil
}

// EnumNames returns the names of an enum's values. It omits the unspecified value and the
// states that no reservation has in this version.
func EnumNames(enum protoreflect.EnumDescriptor) []string {
	var names []string
	for i := range enum.Values().Len() {
		value := enum.Values().Get(i)
		switch value.FullName() {
		case "berth.v1.Reservation.OFFERING", "berth.v1.Reservation.BOUND":
			continue
		}
		if !strings.HasSuffix(string(value.Name()), "_UNSPECIFIED") {
			names = append(names, string(value.Name()))
		}
	}
	return names
}

// unsupported has the fields that are reserved for later versions.
var unsupported = []protoreflect.Name{"near", "apart", "executors"}

// refuseUnsupported returns an error if the request sets a field that is reserved for a later
// version.
func refuseUnsupported(m protoreflect.Message) error {
	for _, name := range unsupported {
		if f := m.Descriptor().Fields().ByName(name); m.Has(f) {
			return fault.BadField(fault.ReasonUnsupported, f.JSONName(),
				"is reserved for a later version and not supported yet")
		}
	}
	return nil
}

// setByBerth is the lowest number of a field that Berth sets and requests may repeat.
const setByBerth = 50

// RefuseUnknown returns an error if a request has a field of a later version. Gateways are
// upgraded before the registry, so they pass such fields on. A registry that ignored them
// would start workers without what the caller requested. Lists are not searched: an upsert
// may list 50,000 workers.
func RefuseUnknown(req proto.Message) error { return refuseUnknown(req.ProtoReflect(), "request") }

func refuseUnknown(m protoreflect.Message, name string) (err error) {
	for unknown := m.GetUnknown(); len(unknown) > 0; {
		number, _, size := protowire.ConsumeField(unknown)
		if size < 0 || number < setByBerth {
			return fault.BadField(fault.ReasonUnsupported, name,
				"has the field number %d, which this version does not support", number)
		}
		unknown = unknown[size:]
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.Message() != nil && !f.IsList() && !f.IsMap() {
			err = refuseUnknown(v.Message(), f.JSONName())
		}
		return err == nil
	})
	return err
}

func specOf(r *berthv1.Reservation) (model.Spec, error) {
	c, t, p := r.GetConstraints(), r.GetTask(), cmp.Or(r.GetPriority(), &berthv1.Priority{})
	spec := model.Spec{
		TargetSize:  r.GetTargetSize(),
		Constraints: ConstraintsOf(c),
		Priority:    model.Priority{Class: enum[model.Class](p.GetClass()), Tier: p.GetTier(), Order: p.Order},
		Batch:       enum[model.Batch](r.GetBatch()),
		Start:       cmp.Or(enum[model.Start](r.GetStart()), model.StartProgressive),
		OnFailure:   cmp.Or(enum[model.OnFailure](r.GetOnAssignmentFailure()), model.OnFailureRequeue),
		MaxAttempts: model.DefaultAttempts,
		MaxRestarts: r.MaxRestarts,
		Labels:      r.GetLabels(),
		Hold:        r.GetHold() == berthv1.Hold_HOLD,
	}
	spec.Constraints.Resources = spec.Constraints.Resources.WithSlots()
	if r.MaxAttempts != nil {
		spec.MaxAttempts = r.GetMaxAttempts()
	}
	var err error
	if spec.Task, err = taskOf(t); err != nil {
		return spec, err
	}
	if spec.QueueTimeout, err = durationOf("queueTimeout", r.GetQueueTimeout()); err != nil {
		return spec, err
	}
	if r.HoldTimeout != nil {
		limit, err := durationOf("holdTimeout", r.GetHoldTimeout())
		if err != nil {
			return spec, err
		}
		spec.HoldTimeout = &limit
	}
	return spec, setLife(&spec, r)
}

// BindTaskOf converts the task of a request to bind; nil for none. It refuses what UpsertOf
// refuses.
func BindTaskOf(m *berthv1.Task) (*model.Task, error) {
	if m == nil {
		return nil, nil
	}
	if err := checkEnum("task.readiness", m.GetReadiness()); err != nil {
		return nil, err
	}
	task, err := taskOf(m)
	if err := cmp.Or(err, checkStartTimeout(m, task)); err != nil {
		return nil, err
	}
	return &task, nil
}

// checkStartTimeout refuses a start timeout of 0, which the model cannot distinguish from an
// unset one.
func checkStartTimeout(m *berthv1.Task, task model.Task) error {
	if m.GetStartTimeout() != nil && task.StartTimeout == 0 {
		return fault.BadField(fault.ReasonInvalid, "task.startTimeout",
			"must be longer than 0s; leave it out to wait without a limit")
	}
	return nil
}

func taskOf(m *berthv1.Task) (model.Task, error) {
	task := model.Task{
		Command: m.GetCommand(), Args: m.GetArgs(), Env: m.GetEnv(), Payload: m.GetPayload(),
		StopGrace: model.DefaultStopGrace, Readiness: enum[model.Readiness](m.GetReadiness()),
	}
	var err error
	if m.GetStopGrace() != nil {
		if task.StopGrace, err = durationOf("task.stopGrace", m.GetStopGrace()); err != nil {
			return task, err
		}
	}
	if m != nil && m.StopSignal != nil {
		if task.StopSignal, err = SignalOf("task.stopSignal", m.GetStopSignal()); err != nil {
			return task, err
		}
		if task.StopSignal == model.SIGTERM { // the default
			task.StopSignal = ""
		}
	}
	task.StartTimeout, err = durationOf("task.startTimeout", m.GetStartTimeout())
	return task, err
}

// SignalOf returns the signal with a name in a request.
func SignalOf(field, name string) (model.Signal, error) {
	signal, ok := model.ParseSignal(name)
	if !ok {
		return "", fault.BadField(fault.ReasonInvalid, field, "must be %s, got %q", aSignal, name)
	}
	return signal, nil
}

// notZero refuses the time that the model uses for an unset one.
func notZero(field string, t *timestamppb.Timestamp) error {
	if t != nil && t.AsTime().IsZero() {
		return fault.BadField(fault.ReasonInvalid, field, "must be later than year 1")
	}
	return nil
}

// setLife sets the fields of a spec that say when the reservation and its workers begin, end
// and are restarted.
func setLife(spec *model.Spec, r *berthv1.Reservation) (err error) {
	if spec.ExpireAt, err = timeOf("expireAt", r.GetExpireAt()); err != nil {
		return err
	}
	if spec.NotBefore, err = timeOf("notBefore", r.GetNotBefore()); err != nil {
		return err
	}
	if l := r.GetLifetime(); l != nil {
		if spec.Lifetime.For, err = durationOf("lifetime.for", l.GetFor()); err != nil {
			return err
		}
		if spec.Lifetime.From, err = wordOf("lifetime.from", l.GetFrom(), model.FromCreated, model.FromLive); err != nil {
			return err
		}
	}
	if r.Restart != nil {
		spec.Restart, err = wordOf("restart", r.GetRestart(), model.RestartNever, model.RestartOnFailure, model.RestartAlways)
		if err != nil {
			return err
		}
	}
	if r.OnWorkerLoss != nil {
		spec.OnWorkerLoss, err = wordOf("onWorkerLoss", r.GetOnWorkerLoss(), model.OnLossNotify, model.OnLossReplace)
		if err != nil {
			return err
		}
	}
	if r.Requeue != nil {
		if spec.Requeue, err = wordOf("requeue", r.GetRequeue(), model.RequeueFirst, model.RequeueByOrder); err != nil {
			return err
		}
	}
	if r.OnWorkerFailure != nil {
		spec.OnWorkerFailure, err = wordOf("onWorkerFailure", r.GetOnWorkerFailure(), model.OnFailedNotify,
			model.OnFailedRestart, model.OnFailedFail)
		if err != nil {
			return err
		}
	}
	if r.Shrink != nil {
		if spec.Shrink, err = wordOf("shrink", r.GetShrink(), model.ShrinkNever, model.ShrinkHighest); err != nil {
			return err
		}
	}
	spec.CompletesWith = r.GetCompletesWith()
	if e := r.GetRestartExitCodes(); len(e.GetRetry())+len(e.GetFail()) > 0 {
		spec.ExitCodes = &model.ExitCodes{Retry: e.GetRetry(), Fail: e.GetFail()}
	}
	spec.Volume, err = VolumeRequestOf(r.GetVolume())
	return err
}

// wordOf returns the value with a name, of a field that is a text in the API.
func wordOf[T fmt.Stringer](field, text string, values ...T) (T, error) {
	for _, v := range values {
		if v.String() == text {
			return v, nil
		}
	}
	var none T
	return none, fault.BadField(fault.ReasonInvalid, field, "must be %s, got %q", oneOf(values...), text)
}

func timeOf(field string, t *timestamppb.Timestamp) (time.Time, error) {
	if t == nil {
		return time.Time{}, nil
	}
	if err := t.CheckValid(); err != nil {
		return time.Time{}, fault.BadField(fault.ReasonInvalid, field, "must be a valid time")
	}
	return t.AsTime(), nil
}

func durationOf(field string, d *durationpb.Duration) (time.Duration, error) {
	if d == nil {
		return 0, nil
	}
	if err := d.CheckValid(); err != nil {
		return 0, fault.BadField(fault.ReasonInvalid, field, "must be a valid duration")
	}
	return d.AsDuration(), nil
}

// StopGraceOf converts the grace of a cancel or a drain from protobuf; nil without one.
func StopGraceOf(d *durationpb.Duration) (*time.Duration, error) {
	if d == nil {
		return nil, nil
	}
	grace, err := durationOf("grace", d)
	if err == nil && grace < 0 {
		err = fault.BadField(fault.ReasonInvalid, "grace", "must not be negative, got %v", grace)
	}
	return &grace, err
}

// Spec converts the key and the spec of a reservation to protobuf.
func Spec(key model.Key, s model.Spec) *berthv1.Reservation {
	m := &berthv1.Reservation{
		Job: key.Job, Stage: key.Stage, Name: key.Name,
		TargetSize:  s.TargetSize,
		Constraints: Constraints(s.Constraints),
		Priority: &berthv1.Priority{Class: berthv1.PriorityClass(s.Priority.Class), Tier: s.Priority.Tier,
			Order: s.Priority.Order},
		Task:  Task(s.Task),
		Batch: berthv1.Batch(s.Batch),
		Start: berthv1.Start(s.Start),

		OnAssignmentFailure: berthv1.OnAssignmentFailure(s.OnFailure),
		MaxAttempts:         &s.MaxAttempts,
		QueueTimeout:        duration(s.QueueTimeout),
		Labels:              s.Labels,
		ExpireAt:            Timestamp(s.ExpireAt),
		NotBefore:           Timestamp(s.NotBefore),
		MaxRestarts:         s.MaxRestarts,
	}
	if s.Lifetime != (model.Lifetime{}) {
		m.Lifetime = &berthv1.Lifetime{For: durationpb.New(s.Lifetime.For), From: s.Lifetime.From.String()}
	}
	if s.Restart != model.RestartNever {
		m.Restart = proto.String(s.Restart.String())
	}
	if s.OnWorkerLoss != model.OnLossNotify {
		m.OnWorkerLoss = proto.String(s.OnWorkerLoss.String())
	}
	if s.Requeue != model.RequeueFirst {
		m.Requeue = proto.String(s.Requeue.String())
	}
	if s.OnWorkerFailure != model.OnFailedNotify {
		m.OnWorkerFailure = proto.String(s.OnWorkerFailure.String())
	}
	if s.Shrink != model.ShrinkNever {
		m.Shrink = proto.String(s.Shrink.String())
	}
	m.CompletesWith = s.CompletesWith
	if e := s.ExitCodes; e != nil {
		m.RestartExitCodes = &berthv1.RestartExitCodes{Retry: e.Retry, Fail: e.Fail}
	}
	m.Volume = VolumeRequest(s.Volume)
	if s.Hold {
		m.Hold = berthv1.Hold_HOLD.Enum()
	}
	if s.HoldTimeout != nil {
		m.HoldTimeout = durationpb.New(*s.HoldTimeout)
	}
	return m
}

// Task converts a task to protobuf.
func Task(t model.Task) *berthv1.Task {
	m := &berthv1.Task{
		Command: t.Command, Args: t.Args, Env: t.Env, Payload: t.Payload,
		StopGrace: durationpb.New(t.StopGrace), StartTimeout: duration(t.StartTimeout),
	}
	if t.Readiness != model.ReadinessUnset {
		m.Readiness = berthv1.Readiness(t.Readiness).Enum()
	}
	m.StopSignal = optional(string(t.StopSignal))
	return m
}

// Constraints converts constraints to protobuf. It omits AvoidFailed.
func Constraints(c constraint.Constraints) *berthv1.Constraints {
	m := &berthv1.Constraints{
		Resources: c.Resources, Sku: c.SKU, Attributes: c.Attributes, Pools: c.Pools, Role: c.Role,
		SameShape: c.SameShape, Pack: c.Pack, Avoid: c.Avoid, DefaultAttributes: c.Defaults,
		Cells: c.Cells,
	}
	if c.Spread.Max > 0 {
		m.Spread = &berthv1.Spread{By: c.Spread.By, Max: c.Spread.Max}
	}
	return m
}

// ConstraintsOf converts constraints from protobuf.
func ConstraintsOf(m *berthv1.Constraints) constraint.Constraints {
	return constraint.Constraints{
		Resources: m.GetResources(), SKU: m.GetSku(), Attributes: m.GetAttributes(), Pools: m.GetPools(), Role: m.GetRole(),
		Defaults: m.GetDefaultAttributes(), SameShape: m.GetSameShape(), Pack: m.GetPack(), Avoid: m.GetAvoid(),
		Spread: constraint.Spread{By: m.GetSpread().GetBy(), Max: m.GetSpread().GetMax()}, Cells: m.GetCells(),
	}
}

// Avoided converts the executors that a reservation avoids for a limited time.
func Avoided(list []model.FailedOn) (avoided []*berthv1.AvoidedExecutor) {
	for _, f := range list {
		avoided = append(avoided, &berthv1.AvoidedExecutor{Executor: f.Executor, Until: Timestamp(f.At.Add(model.AvoidFor)),
			Refused: f.Refused})
	}
	return avoided
}

// ReservationView is a reservation with the fields that the registry derives.
type ReservationView struct {
	*model.Reservation
	// State, Reason and Message are derived from records of all services. Position is the
	// place in the queue.
	State    model.State
	Reason   fault.Reason
	Message  string
	Position int
	// Counts has the number of workers in each state, if it is known.
	Counts map[string]int32
	// Ends has the workers that have ended and whose version has ended too.
	Ends []model.End
	// Avoided has the executors that the reservation currently avoids because of failures.
	Avoided []model.FailedOn
	Change  model.Change
	// HeldUntil is when a held reservation expires because of its HoldTimeout; zero for never.
	HeldUntil time.Time
	// Rating is the rating of its lease; nil for none.
	Rating *int32
	// Pools has the answers of the cells that were asked, by ID.
	Pools map[string]model.CellOffer
	// FieldResults, RequestedCount and RequestedWorkers are about the latest request.
	FieldResults     []model.FieldResult
	RequestedCount   int32
	RequestedWorkers model.WorkerSet
	BoundTask        bool
}

// Reservation converts a reservation to the public message. If forList is true, it omits
// the workers.
func Reservation(v ReservationView, forList bool) *berthv1.Reservation {
	r := Spec(v.Key, v.Spec)
	r.Count = int32(v.Workers.Len())
	if !forList {
		r.Workers = WorkerIDs(v.Workers)
	}
	r.Uid, r.Epoch, r.State = v.UID, v.Epoch, berthv1.Reservation_State(v.State)
	r.Reason, r.Message = optional(string(v.Reason)), optional(v.Message)
	r.Position = int32(v.Position)
	r.CreatedAt, r.UpdatedAt = Timestamp(v.CreatedAt), Timestamp(v.UpdatedAt)
	r.WorkerCounts = maps.Clone(v.Counts)
	for _, e := range v.Ends {
		ends := &berthv1.WorkerEnds{State: e.State.String(), GaveUp: e.GaveUp, More: e.More}
		for _, run := range e.Workers {
			ends.Workers = append(ends.Workers, &berthv1.WorkerRange{First: run.First, Last: run.Last, Number: run.Number})
		}
		r.Ends = append(r.Ends, ends)
	}
	r.Parent, r.Round, r.ExpiresAt = optional(v.Parent), v.Round, Timestamp(v.ExpiresAt())
	r.Avoided, r.Rating = Avoided(v.Avoided), v.Rating
	for id, cell := range v.Pools {
		if r.Pools == nil {
			r.Pools = map[string]*berthv1.CellOffer{}
		}
		r.Pools[id] = CellOffer(cell)
	}
	if held := v.HeldUntil; !held.IsZero() && (r.ExpiresAt == nil || held.Before(v.ExpiresAt())) {
		r.ExpiresAt = Timestamp(held)
	}
	if v.LatestTarget != nil {
		r.TargetSize = *v.LatestTarget
	}
	for _, f := range v.FieldResults {
		r.FieldResults = append(r.FieldResults, &berthv1.FieldResult{Field: f.Field,
			Applies: berthv1.FieldResult_Applies(f.Applies), Message: f.Message})
	}
	r.RequestedCount, r.BoundTask = optional(v.RequestedCount), optional(v.BoundTask)
	if len(v.RequestedWorkers) > 0 {
		r.RequestedWorkers = WorkerIDs(v.RequestedWorkers)
	}
	if v.Change != model.ChangeUnset {
		r.Change = berthv1.UpsertReservationRequest_Change(v.Change).Enum()
	}
	return r
}

func encodeReservation(r *model.Reservation) *recordv1.Reservation {
	spec := Spec(model.Key{}, r.Spec)
	m := &recordv1.Reservation{
		Spec: spec, Uid: r.UID, Workers: Runs(r.Workers), Place: r.Place, PlaceEpoch: r.PlaceEpoch,
		State: berthv1.Reservation_State(r.State), Reason: string(r.Reason), Message: r.Message,
		CreatedAt: Timestamp(r.CreatedAt), UpdatedAt: Timestamp(r.UpdatedAt), EndedAt: Timestamp(r.EndedAt),
		Parent: r.Parent, WorkerCounts: r.WorkerCounts,
		Origin: int32(r.Origin), Round: r.Round, Unwanted: Runs(r.Unwanted), LatestTarget: r.LatestTarget,
		Trace: string(r.Trace), LifetimeEnd: Timestamp(r.LifetimeEnd), NotBefore: Timestamp(r.NotBefore),
		Failures: r.Failures, Requeued: Runs(r.Requeued), RecordsRequeues: r.RecordsRequeues, BoundAt: Timestamp(r.BoundAt),
		Chosen: r.Chosen, Granted: r.Granted, Missing: Runs(r.Missing), RequestedTask: r.RequestedTask, First: r.First,
		Split: r.Split, FailedFor: string(r.FailedFor), RefusedEpoch: r.RefusedEpoch, Continues: r.Continues,
	}
	if l := r.Latest; l != nil {
		m.Latest = &recordv1.LatestRequest{Spec: Spec(model.Key{}, l.Spec), Count: l.Count, Workers: Runs(l.Workers),
			At: Timestamp(l.At), Adds: l.Adds}
	}
	if e := r.Ends; e != nil {
		m.Ends, m.PastEnds, m.Counted = workerEnds(e.Own), workerEnds(e.Past), Runs(e.Counted)
		if f := e.Cause; !f.At.IsZero() {
			m.Cause = &recordv1.WorkerFailure{Index: f.ID.Index, Number: f.ID.Number, At: Timestamp(f.At), Text: f.Text}
		}
	}
	for _, q := range r.Requests {
		change := berthv1.UpsertReservationRequest_Change(q.Change)
		if q.Change == model.Updated { // Berth 0.1 refuses records with a change that it does not know
			change = berthv1.UpsertReservationRequest_UNCHANGED
		}
		m.Requests = append(m.Requests, &recordv1.RequestMark{Id: q.ID, Change: change, Cancelled: q.Cancelled, Call: q.Call,
			Fields: q.Fields})
	}
	for _, g := range r.StopGraces {
		m.StopGraces = append(m.StopGraces, &recordv1.StopGrace{Grace: durationpb.New(g.Grace), Workers: Runs(g.Workers)})
	}
	for _, f := range r.Failed {
		m.Failed = append(m.Failed, &recordv1.FailedOn{Executor: f.Executor, At: Timestamp(f.At),
			BadTask: f.BadTask, Refused: f.Refused})
	}
	m.Earlier = numberRanges(r.Earlier)
	for _, e := range r.EarlierOf {
		m.EarlierOf = append(m.EarlierOf, &recordv1.EarlierNumbers{Workers: Runs(e.Workers),
			Numbers: numberRanges(e.Numbers)})
	}
	return m
}

func decodeReservation(ref model.Ref, m *recordv1.Reservation, create, mod int64) (*model.Reservation, error) {
	if m.GetSpec() == nil {
		return nil, errors.New("spec: is required")
	}
	spec, err := specOf(m.GetSpec())
	if err != nil {
		return nil, err
	}
	r := &model.Reservation{
		Key: ref.Key, UID: ref.ID, Spec: spec, Workers: WorkerSet(m.GetWorkers()), Place: m.GetPlace(),
		PlaceEpoch: m.GetPlaceEpoch(), RefusedEpoch: m.GetRefusedEpoch(),
		State: enum[model.State](m.GetState()), Reason: fault.Reason(m.GetReason()), Message: m.GetMessage(),
		CreatedAt: Time(m.GetCreatedAt()), UpdatedAt: Time(m.GetUpdatedAt()), EndedAt: Time(m.GetEndedAt()),
		Parent: m.GetParent(), WorkerCounts: m.GetWorkerCounts(), Epoch: create, Mod: mod,
		Origin: enum[model.Origin](m.GetOrigin()), Round: m.GetRound(), Unwanted: WorkerSet(m.GetUnwanted()),
		LatestTarget: m.LatestTarget,
		Trace:        model.Trace(m.GetTrace()),
		LifetimeEnd:  Time(m.GetLifetimeEnd()), NotBefore: Time(m.GetNotBefore()), Failures: m.GetFailures(),
		Requeued: WorkerSet(m.GetRequeued()), RecordsRequeues: m.GetRecordsRequeues(), BoundAt: Time(m.GetBoundAt()),
		Chosen: m.GetChosen(), Granted: m.GetGranted(), Missing: WorkerSet(m.GetMissing()),
		RequestedTask: m.GetRequestedTask(), First: m.GetFirst(), Split: m.GetSplit(),
		FailedFor: fault.Reason(m.GetFailedFor()), Continues: m.GetContinues(),
	}
	if l := m.GetLatest(); l != nil {
		r.Latest = &model.Latest{Count: l.GetCount(), Workers: WorkerSet(l.GetWorkers()), At: Time(l.GetAt()),
			Adds: l.GetAdds()}
		if r.Latest.Spec, err = specOf(l.GetSpec()); err != nil {
			return nil, fmt.Errorf("latest: %w", err)
		}
	}
	if len(m.GetEnds()) > 0 || len(m.GetPastEnds()) > 0 {
		r.Ends = &model.Ends{Own: endsOf(m.GetEnds()), Past: endsOf(m.GetPastEnds()), Counted: WorkerSet(m.GetCounted())}
		if f := m.GetCause(); f != nil {
			r.Ends.Cause = model.Failure{ID: model.WorkerID{Index: f.GetIndex(), Number: f.GetNumber()}, At: Time(f.GetAt()),
				Text: f.GetText()}
		}
	}
	for _, q := range m.GetRequests() {
		change := enum[model.Change](q.GetChange())
		if change == model.Unchanged && q.GetFields() != 0 {
			change = model.Updated
		}
		r.Requests = append(r.Requests, model.RequestMark{ID: q.GetId(), Change: change, Cancelled: q.GetCancelled(),
			Call: q.GetCall(), Fields: q.GetFields()})
	}
	for _, g := range m.GetStopGraces() {
		grace := model.StopGrace{Grace: g.GetGrace().AsDuration(), Workers: WorkerSet(g.GetWorkers())}
		r.StopGraces = append(r.StopGraces, grace)
	}
	for _, f := range m.GetFailed() {
		r.Failed = append(r.Failed, model.FailedOn{Executor: f.GetExecutor(), At: Time(f.GetAt()), BadTask: f.GetBadTask(),
			Refused: f.GetRefused()})
	}
	r.Earlier = rangesOf(m.GetEarlier())
	for _, e := range m.GetEarlierOf() {
		r.EarlierOf = append(r.EarlierOf, model.EarlierNumbers{Workers: WorkerSet(e.GetWorkers()),
			Numbers: rangesOf(e.GetNumbers())})
	}
	return r, nil
}

func numberRanges(ranges []model.NumberRange) (list []*recordv1.NumberRange) {
	for _, n := range ranges {
		list = append(list, &recordv1.NumberRange{First: n.First, Last: n.Last})
	}
	return list
}

func rangesOf(list []*recordv1.NumberRange) (ranges []model.NumberRange) {
	for _, n := range list {
		ranges = append(ranges, model.NumberRange{First: n.GetFirst(), Last: n.GetLast()})
	}
	return ranges
}

func workerEnds(ends []model.End) (list []*recordv1.WorkerEnd) {
	for _, e := range ends {
		list = append(list, &recordv1.WorkerEnd{State: berthv1.Assignment_State(e.State), GaveUp: e.GaveUp,
			Cancelled: e.Cancelled, Workers: Runs(e.Workers), More: e.More})
	}
	return list
}

func endsOf(list []*recordv1.WorkerEnd) (ends []model.End) {
	for _, e := range list {
		ends = append(ends, model.End{State: enum[model.WorkerState](e.GetState()), GaveUp: e.GetGaveUp(),
			Cancelled: e.GetCancelled(), Workers: WorkerSet(e.GetWorkers()), More: e.GetMore()})
	}
	return ends
}
