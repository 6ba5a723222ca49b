package wire

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

// Encode returns the stored value of a record.
func Encode(record model.Record) ([]byte, error) {
	var m proto.Message
	switch r := record.(type) {
	case *model.Leader:
		m = &recordv1.Leader{Replica: r.Replica, Address: r.Address, Version: r.Version, Since: Timestamp(r.Since)}
	case *model.Reservation:
		m = encodeReservation(r)
	case *model.Stage:
		stage := &recordv1.Stage{TargetSize: r.TargetSize, Numbers: Runs(r.Numbers)}
		for _, q := range r.Idle {
			stage.Requests = append(stage.Requests, &recordv1.StageRequest{Id: q.ID, Uid: q.UID, Call: q.Call})
		}
		m = stage
	case *model.Executor:
		m = &recordv1.Executor{
			Id: r.ID, Address: r.Address, Sku: r.SKU, Host: r.Host, Attributes: r.Attributes, Resources: r.Resources,
			Generation: r.Generation, Incarnation: r.Incarnation, Nonce: r.Nonce, Ordinal: r.Ordinal, Lost: r.Lost,
			Returning: r.Returning, Orphans: r.Orphans,
			SecretHash: []byte(r.SecretHash), SupersededWorkers: r.SupersededWorkers,
			RegisteredAt: Timestamp(r.RegisteredAt), Since: Timestamp(r.Since),
			Reserved: Shares(r.Reserved), Draining: r.Draining, Silent: r.Silent, Former: r.Former, Removals: r.Removals,
			Unreported: r.Unreported, ReportedThrough: r.ReportedThrough, Kind: ExecutorKind(r.Cell),
			NeedsCommand: r.NeedsCommand, AllowLists: r.AllowLists, DrainGrace: optionalDuration(r.DrainGrace),
		}
	case *model.Offer:
		m = encodeOffer(r)
	case *model.Forgotten:
		m = &recordv1.Forgotten{Ordinal: r.Ordinal, Incarnation: r.Incarnation}
	case *model.Refusal:
		m = &recordv1.Refusal{Incarnation: r.Incarnation, Since: Timestamp(r.Since), Reason: string(r.Reason),
			Message: r.Message}
	case *model.Ready:
		m = &recordv1.Ready{Since: Timestamp(r.Since), By: r.By, Begun: Timestamp(r.Begun)}
	case *model.SKU:
		m = &recordv1.Sku{Sku: SKU(r)}
	case *model.Pool:
		m = &recordv1.Pool{Pool: Pool(r)}
	case *model.Disable:
		m = &recordv1.Disable{
			Ids: r.IDs, Attributes: r.Attributes, Reason: r.Reason, ExpireAt: Timestamp(r.ExpireAt),
			CreatedAt: Timestamp(r.CreatedAt),
			Drain:     r.Drain, Claim: r.Claim, ReportedThrough: r.ReportedThrough, ReportedAll: r.ReportedAll,
			EndedAt: Timestamp(r.EndedAt), Enable: r.Enable, Undone: r.Undone, Grace: optionalDuration(r.Grace),
			Call: r.Call,
		}
	case *model.Live:
		m = &recordv1.Live{Incarnation: r.Incarnation}
	case *model.Poison:
		m = &recordv1.Poison{
			Kind: int32(r.Kind), Key: r.Key, Mod: r.Mod, Request: r.Request, Fingerprint: r.Fingerprint, Content: r.Content,
			Panic: r.Panic, Stack: r.Stack, At: Timestamp(r.At), Replica: r.Replica, Version: r.Version,
		}
	case *model.LeaseChunk:
		m = encodeLease(r)
	case *model.VolumeChunk:
		m = encodeVolumes(r)
	case *model.TaskHeader:
		m = &recordv1.TaskHeader{
			Key: Key(r.Key), Epoch: r.Epoch, Chunks: r.Chunks, Workers: r.Workers, Complete: r.Complete, Lease: r.Lease,
			CreatedAt: Timestamp(r.CreatedAt), Stopping: r.Stopping, Ended: r.Ended,
			Withdrawn: r.Withdrawn, Reason: string(r.Reason), Message: r.Message, Trace: string(r.Trace),
		}
	case *model.TaskChunk:
		m = encodeTask(r)
	default:
		return nil, fmt.Errorf("wire: no encoding for %T", record)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Decode decodes the value of the record ref. create and mod are the revisions of the
// key, and etcdLease is the etcd lease to which the key is attached. Decode never panics.
// A record that it returns is safe to calculate with: lists that belong together have
// equal lengths, enums are known, and amounts and numbers are within their limits.
func Decode(ref model.Ref, value []byte, create, mod, etcdLease int64) (model.Record, error) {
	record, err := decode(ref, value, create, mod, etcdLease)
	if err == nil {
		err = check(ref, record)
	}
	if err != nil {
		return nil, fmt.Errorf("wire: record %+v at revision %d: %w", ref, mod, err)
	}
	return record, nil
}

// messages has the protobuf message of each kind of record.
var messages = map[model.Kind]protoreflect.MessageType{
	model.KindLeader:      (*recordv1.Leader)(nil).ProtoReflect().Type(),
	model.KindReservation: (*recordv1.Reservation)(nil).ProtoReflect().Type(),
	model.KindStage:       (*recordv1.Stage)(nil).ProtoReflect().Type(),
	model.KindExecutor:    (*recordv1.Executor)(nil).ProtoReflect().Type(),
	model.KindForgotten:   (*recordv1.Forgotten)(nil).ProtoReflect().Type(),
	model.KindRefusal:     (*recordv1.Refusal)(nil).ProtoReflect().Type(),
	model.KindReady:       (*recordv1.Ready)(nil).ProtoReflect().Type(),
	model.KindSKU:         (*recordv1.Sku)(nil).ProtoReflect().Type(),
	model.KindPool:        (*recordv1.Pool)(nil).ProtoReflect().Type(),
	model.KindDisable:     (*recordv1.Disable)(nil).ProtoReflect().Type(),
	model.KindPoison:      (*recordv1.Poison)(nil).ProtoReflect().Type(),
	model.KindLive:        (*recordv1.Live)(nil).ProtoReflect().Type(),
	model.KindLeaseChunk:  (*recordv1.LeaseChunk)(nil).ProtoReflect().Type(),
	model.KindTaskHeader:  (*recordv1.TaskHeader)(nil).ProtoReflect().Type(),
	model.KindTaskChunk:   (*recordv1.TaskChunk)(nil).ProtoReflect().Type(),
	model.KindVolumeChunk: (*recordv1.VolumeChunk)(nil).ProtoReflect().Type(),
	model.KindOffer:       (*recordv1.Offer)(nil).ProtoReflect().Type(),
}

// NewRecord returns an empty protobuf message for the stored values of a kind, for tools
// that show records. It returns nil for an unknown kind. Services use Decode.
func NewRecord(kind model.Kind) proto.Message {
	if kind == model.KindChain { // no core has this record
		return &recordv1.Chain{}
	}
	if message, known := messages[kind]; known {
		return message.New().Interface()
	}
	return nil
}

func decode(ref model.Ref, value []byte, create, mod, etcdLease int64) (record model.Record, err error) {
	defer recovered(&err)
	message, known := messages[ref.Kind]
	if !known {
		return nil, fmt.Errorf("no decoding for kind %d", ref.Kind)
	}
	m := message.New().Interface()
	if err := proto.Unmarshal(value, m); err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *recordv1.Leader:
		return &model.Leader{
			Service: ref.ID, Replica: m.GetReplica(), Address: m.GetAddress(), Version: m.GetVersion(),
			Since: Time(m.GetSince()),
		}, nil
	case *recordv1.Reservation:
		return decodeReservation(ref, m, create, mod)
	case *recordv1.Stage:
		stage := &model.Stage{Job: ref.Key.Job, Stage: ref.Key.Stage, TargetSize: m.GetTargetSize(),
			Numbers: WorkerSet(m.GetNumbers())}
		for _, q := range m.GetRequests() {
			stage.Idle = append(stage.Idle, model.IdleRequest{ID: q.GetId(), UID: q.GetUid(), Call: q.GetCall()})
		}
		return stage, nil
	case *recordv1.Executor:
		if m.GetId() != ref.ID {
			return nil, fmt.Errorf("id: must be that of the key, %q, got %q", ref.ID, m.GetId())
		}
		drainGrace, err := optionalDurationOf("drainGrace", m.GetDrainGrace())
		if err != nil {
			return nil, err
		}
		return &model.Executor{
			ID: ref.ID, Address: m.GetAddress(), SKU: m.GetSku(), Host: m.GetHost(), Attributes: m.GetAttributes(),
			Resources: resource.Vector(m.GetResources()), Generation: m.GetGeneration(), Incarnation: m.GetIncarnation(),
			Nonce: m.GetNonce(), Ordinal: m.GetOrdinal(), Lost: m.GetLost(), Returning: m.GetReturning(),
			Orphans:    m.GetOrphans(),
			SecretHash: string(m.GetSecretHash()), SupersededWorkers: m.GetSupersededWorkers(),
			RegisteredAt: Time(m.GetRegisteredAt()), Since: Time(m.GetSince()),
			Reserved: SharesOf(m.GetReserved()), Draining: m.GetDraining(), Silent: m.GetSilent(),
			Former: m.GetFormer(), Removals: m.GetRemovals(),
			Unreported: m.GetUnreported(), ReportedThrough: m.GetReportedThrough(),
			Cell: m.GetKind() == berthv1.Executor_CELL, NeedsCommand: m.GetNeedsCommand(),
			AllowLists: m.GetAllowLists(), DrainGrace: drainGrace,
		}, nil
	case *recordv1.Offer:
		return decodeOffer(ref, m)
	case *recordv1.Forgotten:
		return &model.Forgotten{Ordinal: m.GetOrdinal(), Incarnation: m.GetIncarnation()}, nil
	case *recordv1.Refusal:
		return &model.Refusal{
			Executor: ref.ID, Incarnation: m.GetIncarnation(), Since: Time(m.GetSince()), Reason: fault.Reason(m.GetReason()),
			Message: m.GetMessage(),
		}, nil
	case *recordv1.Ready:
		return &model.Ready{Since: Time(m.GetSince()), By: m.GetBy(), Begun: Time(m.GetBegun())}, nil
	case *recordv1.Sku:
		return SKUOf(m.GetSku()), nil
	case *recordv1.Pool:
		return PoolOf(m.GetPool()), nil
	case *recordv1.Disable:
		grace, err := optionalDurationOf("grace", m.GetGrace())
		if err != nil {
			return nil, err
		}
		return &model.Disable{
			ID: ref.ID, IDs: m.GetIds(), Attributes: m.GetAttributes(), Reason: m.GetReason(),
			ExpireAt: Time(m.GetExpireAt()), CreatedAt: Time(m.GetCreatedAt()),
			Drain: m.GetDrain(), Claim: m.GetClaim(), ReportedThrough: m.GetReportedThrough(), ReportedAll: m.GetReportedAll(),
			EndedAt: Time(m.GetEndedAt()), Enable: m.GetEnable(), Undone: m.GetUndone(),
			Call: m.GetCall(), Grace: grace,
		}, nil
	case *recordv1.Poison:
		service, id, _ := strings.Cut(ref.ID, "/")
		return &model.Poison{
			Service: service, ID: id, Kind: enum[model.PoisonKind](m.GetKind()), Key: m.GetKey(), Mod: m.GetMod(),
			Request: m.GetRequest(), Fingerprint: m.GetFingerprint(), Content: m.GetContent(),
			Panic: m.GetPanic(), Stack: m.GetStack(), At: Time(m.GetAt()), Replica: m.GetReplica(), Version: m.GetVersion(),
		}, nil
	case *recordv1.Live:
		return &model.Live{ID: ref.ID, Incarnation: m.GetIncarnation(), EtcdLease: etcdLease}, nil
	case *recordv1.LeaseChunk:
		return decodeLease(ref, m, create)
	case *recordv1.VolumeChunk:
		return decodeVolumes(ref, m)
	case *recordv1.TaskHeader:
		return &model.TaskHeader{
			UID: ref.ID, Key: KeyOf(m.GetKey()), Epoch: m.GetEpoch(), Chunks: m.GetChunks(), Workers: m.GetWorkers(),
			Complete: m.GetComplete(), Lease: m.GetLease(), CreatedAt: Time(m.GetCreatedAt()),
			Stopping: m.GetStopping(), Ended: m.GetEnded(),
			Withdrawn: m.GetWithdrawn(), Reason: fault.Reason(m.GetReason()), Message: m.GetMessage(),
			Trace: model.Trace(m.GetTrace()),
		}, nil
	case *recordv1.TaskChunk:
		return decodeTask(ref, m), nil
	}
	return nil, fmt.Errorf("no decoding for %T", m)
}

func encodeLease(l *model.LeaseChunk) *recordv1.LeaseChunk {
	m := &recordv1.LeaseChunk{
		Key: Key(l.Key), Epoch: l.Epoch, Chunks: l.Chunks, Total: l.Total, Each: l.Each, Role: l.Role, Cut: l.Cut,
		GrantedAt: Timestamp(l.GrantedAt), Trace: string(l.Trace), OnVolumes: l.OnVolumes,
		Rating: l.Rating,
		Index:  make([]int32, len(l.Workers)), Number: make([]int32, len(l.Workers)), Ordinal: make([]uint32, len(l.Workers)),
	}
	for i, w := range l.Workers {
		m.Index[i], m.Number[i], m.Ordinal[i] = w.Worker.Index, w.Worker.Number, w.Ordinal
	}
	return m
}

func decodeLease(ref model.Ref, m *recordv1.LeaseChunk, create int64) (*model.LeaseChunk, error) {
	n := len(m.GetIndex())
	if len(m.GetNumber()) != n || len(m.GetOrdinal()) != n {
		return nil, fmt.Errorf("lists of %d, %d and %d workers", n, len(m.GetNumber()), len(m.GetOrdinal()))
	}
	l := &model.LeaseChunk{
		UID: ref.ID, Chunk: ref.Chunk, Chunks: m.GetChunks(), Total: m.GetTotal(), Key: KeyOf(m.GetKey()),
		Epoch: m.GetEpoch(),
		Each:  m.GetEach(), Role: m.GetRole(), Cut: m.GetCut(), GrantedAt: Time(m.GetGrantedAt()),
		Trace: model.Trace(m.GetTrace()), Workers: make([]model.Placement, n), OnVolumes: m.GetOnVolumes(), Create: create,
		Rating: m.Rating,
	}
	for i := range l.Workers {
		l.Workers[i] = model.Placement{Worker: model.WorkerID{Index: m.GetIndex()[i], Number: m.GetNumber()[i]},
			Ordinal: m.GetOrdinal()[i]}
	}
	return l, nil
}

func encodeTask(c *model.TaskChunk) *recordv1.TaskChunk {
	m := &recordv1.TaskChunk{Workers: make([]*recordv1.TaskWorker, len(c.Workers))}
	for i, w := range c.Workers {
		m.Workers[i] = &recordv1.TaskWorker{
			Index: w.ID.Index, Number: w.ID.Number, Ordinal: w.Ordinal, State: berthv1.Assignment_State(w.State),
			Since: Timestamp(w.Since.Time()), Attempts: w.Attempts, LastError: w.LastError.String(), Reason: string(w.Reason),
			ExitCode: w.ExitCode, Incarnation: w.Incarnation, Sequence: w.Sequence, Requeue: w.Requeue,
			Cleared:      w.Cleared.String(),
			RunningSince: Timestamp(w.RunningSince.Time()), BadTask: w.BadTask, Host: w.Host.String(),
			UnansweredSince: Timestamp(w.UnansweredSince.Time()), Unconfirmed: w.Unconfirmed,
			NeverStarted: w.NeverStarted,
			LaterState:   berthv1.Assignment_State(w.Later.State), LaterNumber: w.Later.Number, LaterOrdinal: w.Later.Ordinal,
		}
	}
	return m
}

func decodeTask(ref model.Ref, m *recordv1.TaskChunk) *model.TaskChunk {
	c := &model.TaskChunk{UID: ref.ID, Chunk: ref.Chunk, Workers: make([]model.TaskWorker, len(m.GetWorkers()))}
	for i, w := range m.GetWorkers() {
		c.Workers[i] = model.TaskWorker{
			ID: model.WorkerID{Index: w.GetIndex(), Number: w.GetNumber()}, Ordinal: w.GetOrdinal(),
			State: enum[model.WorkerState](w.GetState()),
			Since: model.InstantOf(Time(w.GetSince())), Attempts: w.GetAttempts(), LastError: model.Intern(w.GetLastError()),
			Reason:   fault.Reason(w.GetReason()),
			ExitCode: w.ExitCode, Incarnation: w.GetIncarnation(), Sequence: w.GetSequence(), Requeue: w.GetRequeue(),
			Cleared: model.Intern(w.GetCleared()), RunningSince: model.InstantOf(Time(w.GetRunningSince())),
			Host:    model.Intern(w.GetHost()),
			BadTask: w.GetBadTask(), UnansweredSince: model.InstantOf(Time(w.GetUnansweredSince())),
			Unconfirmed: w.GetUnconfirmed(), NeverStarted: w.GetNeverStarted(),
			Later: model.LastWorker{State: enum[model.WorkerState](w.GetLaterState()), Number: w.GetLaterNumber(),
				Ordinal: w.GetLaterOrdinal()},
		}
	}
	return c
}
