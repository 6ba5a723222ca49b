package wire

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	recordv1 "berth.dev/api/berth/record/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

func at(s int64) time.Time { return time.Unix(s, 500).UTC() }

// records returns one record of every stored kind. Every field of the records is set.
func records() []model.Record {
	order, exit, most, after, none := int64(-7), int32(3), int32(8), 5*time.Second, time.Duration(0)
	key := model.Key{Job: "etl", Stage: "map", Name: "main"}
	return []model.Record{
		&model.Reservation{
			Key: key, UID: "1a-2",
			Spec: model.Spec{
				TargetSize: 9,
				Constraints: constraint.Constraints{
					Resources: resource.Vector{"cpu": 1000, "slots": 1}, SKU: "small", Attributes: map[string]string{"zone": "a"},
					Defaults: []string{"zone"}, Pools: []string{"p"}, Role: "web", SameShape: true, Pack: true,
					Spread: constraint.Spread{By: "zone", Max: 2}, Avoid: []string{"host-3"},
				},
				Priority: model.Priority{Class: model.ClassScale, Tier: 2, Order: &order},
				Task: model.Task{Command: "sh", Args: []string{"-c", "true"}, Env: map[string]string{"A": "b"},
					Payload: []byte{1}, StopGrace: time.Second},
				Batch: model.BatchBestEffort, Start: model.StartTogether, OnFailure: model.OnFailureNotify,
				MaxAttempts: 4, QueueTimeout: time.Minute, Labels: map[string]string{"team": "x"},
			},
			Workers: model.WorkerSetOf([]model.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 1}, {Index: 4, Number: 2}}),
			Place:   5, PlaceEpoch: 44, State: model.Cancelling, Reason: fault.ReasonCancelled, Message: "why",
			CreatedAt: at(1), UpdatedAt: at(2), EndedAt: at(3),
			Requests: []model.RequestMark{{ID: "r1", Change: model.Reordered, Cancelled: 2, Call: 1 << 63},
				{ID: "r2", Change: model.Updated, Fields: 1 << 63}, {ID: "r3", Change: model.Unchanged}}, Parent: "1a-1",
			WorkerCounts: map[string]int32{"COMPLETED": 3},
			Origin:       model.OriginPart, Round: 2, Unwanted: model.WorkerSetOf([]model.WorkerID{{Index: 4, Number: 2}}),
			LatestTarget: &most,
			FailedFor:    fault.ReasonNotAllowed,
			Failed:       []model.FailedOn{{Executor: "host-1", At: at(4), BadTask: true, Refused: true}, {Executor: "host-2", At: at(5)}},
			LifetimeEnd:  at(6), NotBefore: at(7), Failures: 1,
			Requeued: model.WorkerSetOf([]model.WorkerID{{Index: 1, Number: 1}}),
			Granted:  true,
			StopGraces: []model.StopGrace{
				{Grace: time.Second, Workers: model.WorkerSet{{First: 1, Last: 2, Number: 3}}}, {}},
			Split:           true,
			Missing:         model.WorkerSetOf([]model.WorkerID{{Index: 2, Number: 1}}),
			RecordsRequeues: true, Earlier: []model.NumberRange{{First: 1, Last: 3}, {First: 7, Last: 7}},
			First: "1a-0", Ends: &model.Ends{
				Own: []model.End{{State: model.WorkerFailed, GaveUp: true,
					Workers: model.WorkerSetOf([]model.WorkerID{{Index: 1, Number: 1}})}},
				Past: []model.End{{State: model.WorkerCompleted, More: 3,
					Workers: model.WorkerSetOf([]model.WorkerID{{Index: 7, Number: 2}})}},
				Cause: model.Failure{ID: model.WorkerID{Index: 1, Number: 1}, At: at(8), Text: "exit code 3"},
			},
			Epoch: 11, Mod: 12,
		},
		&model.Reservation{
			Key: key, UID: "1a-3",
			Spec: model.Spec{
				Task: model.Task{StartTimeout: time.Minute, Readiness: model.ReadyReported, StopSignal: "SIGINT"}, ExpireAt: at(1),
				NotBefore: at(2),
				Lifetime:  model.Lifetime{For: time.Hour, From: model.FromLive}, Restart: model.RestartAlways,
				OnWorkerLoss: model.OnLossReplace, MaxRestarts: &most, Requeue: model.RequeueByOrder,
				Volume: &model.VolumeRequest{Resource: "slots", OnLoss: model.OnVolumeLossReplace, KeepFor: &after},
				Batch:  model.BatchStrict, Start: model.StartProgressive, OnFailure: model.OnFailureRequeue, MaxAttempts: 3,
				Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}, Cells: true},
				Hold:        true, HoldTimeout: &none, OnWorkerFailure: model.OnFailedFail, CompletesWith: []int32{0, 2},
				ExitCodes: &model.ExitCodes{Retry: []int32{0, 75}, Fail: []int32{255}}, Shrink: model.ShrinkHighest,
			},
			Workers: model.WorkerSetOf([]model.WorkerID{{Number: 1}}), State: model.Queued, Place: 6, BoundAt: at(3),
			Chosen: "zone-a", RequestedTask: 1 << 63,
			Latest: &model.Latest{Spec: model.Spec{Task: model.Task{Command: "sh"}, Start: model.StartProgressive,
				OnFailure: model.OnFailureRequeue, MaxAttempts: 3,
				Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}}}, Count: 3,
				Workers: model.WorkerSetOf([]model.WorkerID{{Index: 7, Number: 1}, {Index: 137}}), At: at(8)},
			Epoch: 11, Mod: 12,
		},
		&model.Leader{Service: model.ServiceRegistry, Replica: "r-1", Address: "127.0.0.1:7101", Version: "v1", Since: at(9)},
		&model.Stage{Job: "etl", Stage: "map", TargetSize: 3, Numbers: model.WorkerSet{{First: 0, Last: 7, Number: 2}},
			Idle: []model.IdleRequest{{ID: "r", UID: "1a-2", Call: 7}}},
		&model.Executor{
			ID: "host-1", Address: "127.0.0.1:7200", SKU: "small", Host: "h", Attributes: map[string]string{"zone": "a"},
			Resources: resource.Vector{"cpu": 4000}, Generation: 2, Incarnation: 3, Nonce: "n", Ordinal: 9, Lost: true,
			Returning: true, Orphans: true, SecretHash: "h", SupersededWorkers: true,
			Reserved: map[string]resource.Vector{"web": {"cpu": 1000}}, Draining: true, Silent: true, Former: []string{"n0"}, Removals: []string{"old-data"},
			Unreported: []string{"d-1"}, ReportedThrough: "1a-2",
			RegisteredAt: at(4), Since: at(5), NeedsCommand: true, AllowLists: "1f", DrainGrace: &after,
		},
		&model.Executor{ID: "zone-a", Address: "127.0.0.1:7200", Incarnation: 3, Nonce: "n", Ordinal: 10, Cell: true,
			RegisteredAt: at(4), Since: at(5)},
		&model.Offer{
			UID: "1a-3", Key: key, Number: 17, AskedAt: at(4), AnswerWithin: 10 * time.Second, DecidedAt: at(5),
			Repeat: true,
			Cells: []model.CellOffer{{Ordinal: 9, State: model.CellRejected, Reason: fault.ReasonCycle, Message: "why"},
				{Ordinal: 10, State: model.CellBound, Rating: 80}},
		},
		&model.Live{ID: "host-1", Incarnation: 3, EtcdLease: 77},
		&model.Poison{
			Service: model.ServiceRegistry, ID: "1f2e", Kind: model.PoisonWork, Key: "/berth/x/registry/ready", Mod: 7,
			Request: "model.Upsert", Fingerprint: "1f2e", Content: "{}", Panic: "index out of range", Stack: "goroutine 1",
			At: at(8), Replica: "r-1", Version: "v1",
		},
		&model.LeaseChunk{
			UID: "1a-2", Chunk: 1, Chunks: 2, Total: 1025, Key: key, Epoch: 11, Each: resource.Vector{"cpu": 1000}, Role: "web",
			Workers: []model.Placement{{Worker: model.WorkerID{Index: 4, Number: 2}, Ordinal: 9}}, Cut: 10, GrantedAt: at(6),
			OnVolumes: true, Rating: &most, Create: 11,
		},
		&model.VolumeChunk{Job: "etl", Stage: "map", Chunk: 2, Volumes: []model.Volume{
			{ID: "0a1b2c3d4e5f", Index: 130, Ordinal: 9, State: model.VolumeReady, Since: at(4),
				Each: resource.Vector{"cpu": 1000, "disk": 7}, Resource: "disk", Role: "web", Whole: true, KeepFor: &none,
				Used: true, Delete: true, Incarnation: 3, Sequence: 17},
			{ID: "0a1b2c3d4e60", Index: 130, Ordinal: 8, State: model.VolumeDestroying, Since: at(5),
				Each: resource.Vector{"disk": 7}, Resource: "disk", UnwantedSince: at(5)},
		}},
		&model.TaskHeader{
			UID: "1a-2", Key: key, Epoch: 11, Chunks: 1, Workers: 3, Complete: true, Lease: 13, CreatedAt: at(7),
			Stopping: true, Ended: true,
			Withdrawn: true, Reason: fault.ReasonNotTogether, Message: "why",
		},
		&model.TaskChunk{UID: "1a-2", Workers: []model.TaskWorker{{
			ID: model.WorkerID{Index: 4, Number: 2}, Ordinal: 9, State: model.WorkerFailed, Since: model.InstantOf(at(8)),
			Attempts: 2, LastError: model.Intern("exit"), Reason: fault.ReasonExited, ExitCode: &exit,
			Incarnation: 3, Sequence: 17, Requeue: true,
			Cleared: model.Intern("r9"), RunningSince: model.InstantOf(at(9)), BadTask: true,
			UnansweredSince: model.InstantOf(at(7)),
			Unconfirmed:     true, NeverStarted: true, Host: model.Intern("leaf-3"),
			Later: model.LastWorker{State: model.WorkerCompleted, Number: 3, Ordinal: 8},
		}}},
		&model.Ready{Since: at(10), By: "signal", Begun: at(9)},
		&model.SKU{
			Name: "small", Resources: resource.Vector{"cpu": 4000}, Attributes: map[string]string{"zone": "a"},
			UpdatedAt: at(11),
			Scale: &model.ScaleRule{MinIdle: 1, MaxIdle: &most, MinSize: 2, MaxSize: &most,
				Cooldown: time.Minute, HoldUntil: at(12)},
		},
		&model.Pool{Name: "night", Attributes: map[string]string{"pool": "night"}, LostAfter: &after, UpdatedAt: at(12)},
		&model.Disable{
			ID: "d-1", IDs: []string{"host-1"}, Attributes: map[string]string{"zone": "a"}, Reason: "repair", ExpireAt: at(13),
			CreatedAt: at(12),
			EndedAt:   at(14), Drain: true, Claim: true, Enable: true, Undone: 3, ReportedThrough: "host-1/1a-2",
			ReportedAll: true,
			Call:        1 << 63, Grace: &after,
		},
		&model.Forgotten{Ordinal: 9, Incarnation: 44},
		&model.Refusal{Executor: "host-1", Incarnation: 44, Since: at(4), Reason: "PERMISSION_DENIED", Message: "no"},
	}
}

// TestRecordsRoundTrip checks that every field of every record is preserved by the store.
func TestRecordsRoundTrip(t *testing.T) {
	for _, record := range records() {
		value, err := Encode(record)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(record.Ref(), value, 11, 12, 77)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(record, back); diff != "" {
			t.Errorf("%T changed on its way (-put +got):\n%s", record, diff)
		}
	}
}

// A scale rule of an older version has neither a cooldown nor a hold.
func TestScaleRulesOfOlderVersions(t *testing.T) {
	value, err := proto.Marshal(&recordv1.Sku{Sku: &berthv1.Sku{Name: "small", Scale: &berthv1.ScaleRule{MinIdle: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	record, err := Decode((&model.SKU{Name: "small"}).Ref(), value, 11, 12, 0)
	if err != nil {
		t.Fatal(err)
	}
	rule := record.(*model.SKU).Scale
	if diff := cmp.Diff(&model.ScaleRule{MinIdle: 1}, rule); diff != "" || rule.Held(at(0)) {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestStatesMatchTheWireNumbers checks that the enums of the model have the numbers and
// names of the API, because the code casts them.
func TestStatesMatchTheWireNumbers(t *testing.T) {
	for s := model.Queued; s <= model.Offering; s++ {
		if got := berthv1.Reservation_State(s).String(); got != s.String() {
			t.Errorf("state %d is %s on the wire, %s in the model", s, got, s)
		}
	}
	for s := model.WorkerAssigned; s <= model.WorkerEvicted; s++ {
		if got := berthv1.Assignment_State(s).String(); got != s.String() {
			t.Errorf("worker state %d is %s on the wire, %s in the model", s, got, s)
		}
	}
	for s := model.ExecutorRegistered; s <= model.ExecutorLost; s++ {
		if got := berthv1.Executor_State(s).String(); got != s.String() {
			t.Errorf("executor state %d is %s on the wire, %s in the model", s, got, s)
		}
	}
	for s := model.CellPending; s <= model.CellWithdrawn; s++ {
		if got := berthv1.CellOffer_State(s).String(); got != s.String() {
			t.Errorf("state %d of an offer is %s on the wire, %s in the model", s, got, s)
		}
	}
	for c := model.Created; c <= model.Updated; c++ {
		if got := berthv1.UpsertReservationRequest_Change(c).String(); got != c.String() {
			t.Errorf("change %d is %s on the wire, %s in the model", c, got, c)
		}
	}
}

// If a client sends the answer of a read as a request, it requests the current state.
func TestUpsertIgnoresOutputFields(t *testing.T) {
	view := ReservationView{Reservation: records()[0].(*model.Reservation), State: model.Active,
		Reason: fault.ReasonBehindHead, Message: "m", Position: 3, Counts: map[string]int32{"RUNNING": 1},
		Change: model.Created, Avoided: []model.FailedOn{{Executor: "host-1"}}, Rating: new(int32(60)),
		Pools:          map[string]model.CellOffer{"zone-a": {State: model.CellAccepted, Rating: 60}},
		Ends:           records()[0].(*model.Reservation).Ends.Past,
		FieldResults:   []model.FieldResult{{Field: "task.command", Applies: model.AppliesLater, Message: "m"}},
		RequestedCount: 1, RequestedWorkers: records()[0].(*model.Reservation).Workers, BoundTask: true}
	answer := Reservation(view, false)
	fields := answer.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); f.Number() >= 50 && !answer.ProtoReflect().Has(f) {
			t.Errorf("the answer has no %s, so the test does not cover it", f.Name())
		}
	}
	got, err := UpsertOf(&berthv1.UpsertReservationRequest{Reservation: answer})
	if err != nil {
		t.Fatal(err)
	}
	if got.Count != 0 || len(got.Workers) != view.Workers.Len() || got.RequestID != "" || got.IfEpoch != 0 {
		t.Errorf("requested %+v", got)
	}
	want := view.Spec
	want.TargetSize = *view.LatestTarget
	want.Constraints.Resources = want.Constraints.Resources.WithSlots()
	want.Constraints.Defaults = nil // the caller names the attributes
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// If the count equals the number of listed workers, it is ignored. The queue refuses any
// other count.
func TestUpsertAcceptsTheCountOfItsWorkers(t *testing.T) {
	for count, want := range map[int32]int32{2: 0, 0: 0, 1: 1, 3: 3} {
		r := &berthv1.Reservation{Count: count, Workers: []*berthv1.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 1}}}
		if got, err := UpsertOf(&berthv1.UpsertReservationRequest{Reservation: r}); err != nil || got.Count != want {
			t.Errorf("count %d: %d, %v; want %d", count, got.Count, err, want)
		}
	}
}

// TestUpsertRefusals checks which requests are refused before they reach the queue, and
// which field the error names.
func TestUpsertRefusals(t *testing.T) {
	described := map[protoreflect.FullName]bool{}
	for _, c := range []struct {
		body   string
		field  string
		reason fault.Reason
	}{
		{`{"maxAttempts":0}`, "maxAttempts", fault.ReasonInvalid},
		{`{"hold":3}`, "hold", fault.ReasonInvalid},
		{`{"hold":"HOLD","holdTimeout":"0s"}`, "", ""},
		{`{"lifetime":{"for":"3s"}}`, "lifetime.from", fault.ReasonInvalid},
		{`{"expireAt":"0001-01-01T00:00:00Z"}`, "expireAt", fault.ReasonInvalid},
		{`{"restart":"always"}`, "restart", fault.ReasonInvalid},
		{`{"requeue":"LAST"}`, "requeue", fault.ReasonInvalid},
		{`{"onWorkerFailure":"STOP"}`, "onWorkerFailure", fault.ReasonInvalid},
		{`{"lifetime":{"for":"1s","from":"NOW"}}`, "lifetime.from", fault.ReasonInvalid},
		{`{"shrink":"stop"}`, "shrink", fault.ReasonInvalid},
		{`{"shrink":"NEVER"}`, "", ""},
		{`{"onWorkerLoss":""}`, "onWorkerLoss", fault.ReasonInvalid},
		{`{"volume":{"resource":"disk","onLoss":"replace"}}`, "volume.onLoss", fault.ReasonInvalid},
		{`{"volume":{"onLoss":""}}`, "volume.onLoss", fault.ReasonInvalid},
		{`{"volume":{"resource":"disk","onLoss":"REPLACE","keepFor":"0s"}}`, "", ""},
		{`{"near":"v"}`, "near", fault.ReasonUnsupported},
		{`{"apart":"v"}`, "apart", fault.ReasonUnsupported},
		{`{"executors":["a"]}`, "executors", fault.ReasonUnsupported},
		{`{"notBefore":"0001-01-01T00:00:00Z"}`, "notBefore", fault.ReasonInvalid},
		{`{"task":{"startTimeout":"0s"}}`, "task.startTimeout", fault.ReasonInvalid},
		{`{"task":{"readiness":3}}`, "task.readiness", fault.ReasonInvalid},
		{`{"task":{"stopSignal":""}}`, "task.stopSignal", fault.ReasonInvalid},
		{`{"task":{"stopSignal":"15"}}`, "task.stopSignal", fault.ReasonInvalid},
		{`{"task":{"stopSignal":"SIGSIGINT"}}`, "task.stopSignal", fault.ReasonInvalid},
		{`{"task":{"stopSignal":"int"}}`, "", ""},
		{`{"task":{"stopSignal":"SIGUSR2"}}`, "", ""},
		{`{"batch":17}`, "batch", fault.ReasonInvalid},
		{`{"priority":{"class":9}}`, "priority.class", fault.ReasonInvalid},
		{`{"queueTimeout":"0s"}`, "queueTimeout", fault.ReasonInvalid},
		{`{"queueTimeout":"10s","task":{"stopGrace":"-0s"}}`, "", ""},
	} {
		r := &berthv1.Reservation{}
		if err := protojson.Unmarshal([]byte(c.body), r); err != nil {
			t.Fatalf("%s: %v", c.body, err)
		}
		_, err := UpsertOf(&berthv1.UpsertReservationRequest{Reservation: r})
		if c.field == "" {
			if err != nil {
				t.Errorf("%s: %v", c.body, err)
			}
			continue
		}
		e := fault.Of(err)
		if e == nil || e.Reason != c.reason || len(e.Fields) != 1 || e.Fields[0].Name != c.field {
			t.Errorf("%s: got %+v, want %s of %s", c.body, e, c.reason, c.field)
			continue
		}
		var field protoreflect.FieldDescriptor
		md := r.ProtoReflect().Descriptor()
		for part := range strings.SplitSeq(c.field, ".") {
			if field = md.Fields().ByJSONName(part); field == nil {
				break
			}
			md = field.Message()
		}
		if field == nil || field.Kind() != protoreflect.StringKind || field.IsList() {
			continue
		}
		if words := Word(field); words != "" {
			described[field.FullName()] = true
			if !strings.HasPrefix(e.Fields[0].Problem, "must be "+words) {
				t.Errorf("%s: %s, but the field accepts %s", c.body, e.Fields[0].Problem, words)
			}
		} else if strings.Contains(e.Fields[0].Problem, "one of") {
			t.Errorf("%s: Word does not know %s", c.body, field.FullName())
		}
	}
	described["berth.v1.SignalWorkersRequest.signal"] = true
	for name := range words {
		if _, err := protoregistry.GlobalFiles.FindDescriptorByName(name); err != nil || !described[name] {
			t.Errorf("no request has the field %s", name)
		}
	}
}

// A registry refuses the fields of later versions, which newer gateways pass on, except those
// that Berth sets.
func TestFieldsOfLaterVersions(t *testing.T) {
	add := func(m proto.Message, number protowire.Number) {
		m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), 1))
	}
	for _, c := range []struct {
		add   func(*berthv1.UpsertReservationRequest)
		field string
	}{
		{func(r *berthv1.UpsertReservationRequest) { add(r, 9) }, "request"},
		{func(r *berthv1.UpsertReservationRequest) { add(r.Reservation, 49) }, "reservation"},
		{func(r *berthv1.UpsertReservationRequest) { add(r.Reservation, 50) }, ""},
		{func(r *berthv1.UpsertReservationRequest) { add(r.Reservation.Constraints.Spread, 3) }, "spread"},
	} {
		req := &berthv1.UpsertReservationRequest{Reservation: &berthv1.Reservation{
			Constraints: &berthv1.Constraints{Spread: &berthv1.Spread{By: "zone", Max: 1}}}}
		c.add(req)
		err := RefuseUnknown(req)
		if e := fault.Of(err); c.field == "" && err != nil ||
			c.field != "" && (e == nil || e.Reason != fault.ReasonUnsupported || e.Fields[0].Name != c.field) {
			t.Errorf("got %v, want UNSUPPORTED of %q", err, c.field)
		}
	}
}

// If a number is not a value of its enum, it is refused like an unknown name. The error
// lists the possible values.
func TestUnknownNumbersOfEnums(t *testing.T) {
	for _, c := range []struct {
		r    *berthv1.Reservation
		want string
	}{
		{&berthv1.Reservation{Start: 7}, "start: must be one of PROGRESSIVE, TOGETHER, got 7"},
		{&berthv1.Reservation{Priority: &berthv1.Priority{Class: 9}},
			"priority.class: must be one of REPLACE, SCALE, NEW_JOB, got 9"},
	} {
		if _, err := UpsertOf(&berthv1.UpsertReservationRequest{Reservation: c.r}); fault.Of(err) == nil ||
			fault.Of(err).Message != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

func TestUpsertDefaults(t *testing.T) {
	u, err := UpsertOf(&berthv1.UpsertReservationRequest{Reservation: &berthv1.Reservation{Job: "j", Stage: "s",
		Count: 2}})
	if err != nil {
		t.Fatal(err)
	}
	want := model.Upsert{
		Key: model.Key{Job: "j", Stage: "s", Name: "main"}, Count: 2,
		Spec: model.Spec{
			Constraints: constraint.Constraints{Resources: resource.Vector{"slots": 1}},
			Task:        model.Task{StopGrace: model.DefaultStopGrace},
			Start:       model.StartProgressive, OnFailure: model.OnFailureRequeue, MaxAttempts: 3,
		},
	}
	if diff := cmp.Diff(want, u); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestReservationAnswer checks that the answer to a GET has the body, the derived state and
// the workers. It also checks that a list does not have the workers.
func TestReservationAnswer(t *testing.T) {
	r := records()[0].(*model.Reservation)
	view := ReservationView{Reservation: r, State: model.Assigning, Position: 0, Change: model.ChangeReplaced,
		Counts: map[string]int32{"RUNNING": 1}}
	text, err := protojson.Marshal(Reservation(view, false))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"ASSIGNING"`, `"REPLACED"`, `"number":2`, `"1a-2"`, `"RUNNING":1`} {
		if !strings.Contains(strings.ReplaceAll(string(text), " ", ""), want) {
			t.Errorf("%s is not in %s", want, text)
		}
	}
	if m := Reservation(view, true); len(m.Workers) != 0 || m.Count != 3 {
		t.Errorf("a list shows %d workers and count %d", len(m.Workers), m.Count)
	}
}
