package show

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                   "0s",
		900 * time.Millisecond:         "0s",
		3 * time.Second:                "3s",
		2*time.Minute + 10*time.Second: "2m10s",
		time.Hour:                      "1h",
		5*time.Hour + 3*time.Minute:    "5h3m",
		103 * time.Hour:                "4d7h",
	} {
		if got := Age(d); got != want {
			t.Errorf("Age(%v) = %s, want %s", d, got, want)
		}
	}
}

func TestAmounts(t *testing.T) {
	for _, c := range []struct {
		resource string
		n        int64
		want     string
	}{
		{"cpu", 500, "0.5"}, {"cpu", 8000, "8"}, {"memory", 0, "0"}, {"memory", 1023, "1023"},
		{"memory", 1536 << 20, "1.5Gi"}, {"disk", 2 << 40, "2Ti"}, {"gpu", 8000, "8000"},
	} {
		if got := amount(c.resource, c.n); got != c.want {
			t.Errorf("amount(%s, %d) = %s, want %s", c.resource, c.n, got, c.want)
		}
	}
}

func TestConstraints(t *testing.T) {
	if got := constraints(nil); got != "any executor" {
		t.Errorf("no constraints: %s", got)
	}
	got := constraints(&berthv1.Constraints{
		Resources: map[string]int64{"memory": 1 << 30, "cpu": 1500}, Sku: "big", Attributes: map[string]string{"zone": "a"},
		Pools: []string{"p", "q"}, Role: "batch", SameShape: true, Spread: &berthv1.Spread{By: "rack", Max: 2}, Pack: true,
		Avoid: []string{"ex-1"},
	})
	const want = "cpu 1.5, memory 1Gi, sku big, zone=a, pools p,q, role batch, same shape, at most 2 for each rack, packed, avoid ex-1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRowsAreSingleLines checks that a newline in a text, such as an error, does not
// break a row.
func TestRowsAreSingleLines(t *testing.T) {
	text := Assignments([]*berthv1.Assignment{{Job: "a", Stage: "b", Executor: "é",
		LastError: proto.String("one\ntwo\x1b[2J")}}, noon, false).text("")
	if lines := strings.Count(text, "\n"); lines != 2 || strings.ContainsRune(text, '\x1b') {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

// TestTablesFit80Columns checks that tables with names of usual length fit into 80 columns.
func TestTablesFit80Columns(t *testing.T) {
	at := timestamppb.New(noon.Add(-26 * time.Hour))
	tables := map[string]*Table{
		"reservations": Reservations([]*berthv1.Reservation{{
			Job: "train-resnet", Stage: "gpu", Name: "main", State: berthv1.Reservation_CANCELLING, Count: 128,
			WorkerCounts: map[string]int32{"RUNNING": 100}, Position: 12, CreatedAt: at,
			Reason: proto.String("INSUFFICIENT_CAPACITY"),
		}}, noon, false),
		"pending": Pending([]*berthv1.PendingGroup{{
			Id: "a1b2c3d4", Reservations: 12, Workers: 480, Head: &berthv1.ReservationKey{Job: "train-resnet", Stage: "gpu"},
			HeadAge: durationpb.New(26 * time.Hour), Reason: "INSUFFICIENT_CAPACITY",
		}}, noon, false),
		"usage": Usage(&berthv1.GetUsageAnswer{
			Skus: []*berthv1.SkuUsage{{
				Sku: "gpu-8", Total: 10000, Idle: 1200, Leased: 128, Running: 8000, Unavailable: 72, PendingExecutors: 480,
				WantedSize: 10480, WantedReason: "MAX_SIZE",
				WantedMessage: "spare executors: 720, minIdle: 1200; maxSize: 10480, which is a long explanation",
			}},
			Unmapped: []*berthv1.UnmappedDemand{{
				Group: "a1b2c3d4", Reservations: 12, Workers: 480, Reason: "NO_MATCHING_SKU",
				Constraints: &berthv1.Constraints{Sku: "gpu-16", Attributes: map[string]string{"zone": "a"}},
			}},
		}, noon, false),
		"skus": SKUs([]*berthv1.Sku{{
			Name: "gpu-8", Resources: map[string]int64{"cpu": 64000, "memory": 512 << 30, "gpu": 8},
			Scale: &berthv1.ScaleRule{MinIdle: 2, Cooldown: durationpb.New(90 * time.Minute),
				HoldUntil: timestamppb.New(noon.Add(26 * time.Hour))}, UpdatedAt: at,
		}}, noon, false),
		"pools": Pools([]*berthv1.Pool{{Name: "night", Attributes: map[string]string{"zone": "a"},
			LostAfter: durationpb.New(90 * time.Second), UpdatedAt: at}}, noon, false),
		"findings": Findings([]*berthv1.Finding{{Kind: "MASS_LOSS", Object: "night", Since: at,
			Message: "30 executors lost their presence within 15s of each other: not declared LOST",
			Action:  "Berth keeps their workers. The finding ends when enough of them return; drain those that will not return.",
			Service: "executor-state"}}, noon, false),
		"executors": Executors([]*berthv1.Executor{{
			Id: "gpu-host-0123", Sku: "gpu-8", State: berthv1.Executor_UNREACHABLE, Workers: 1, Since: at,
			Resources: map[string]int64{"slots": 1, "cpu": 64000, "memory": 512 << 30},
			Used:      map[string]int64{"cpu": 1500, "memory": 96 << 30},
		}}, noon, false),
		"leaders": Leaders([]*berthv1.ServiceLeadership{{
			Service: "executor-state", Leader: "executor-state-0", Address: "10.10.10.10:7102", Term: 123456, Since: at,
			Renewed: at,
		}}, noon, false),
	}
	for name, table := range tables {
		for line := range strings.Lines(table.String()) {
			if len(line) > 81 {
				t.Errorf("%s has %d columns:\n%s", name, len(line)-1, line)
			}
		}
	}
}

// TestReservationsShowLostWorkers checks that a gang without success does not look like one
// that completed.
func TestReservationsShowLostWorkers(t *testing.T) {
	for want, counts := range map[string]map[string]int32{
		"6 EVICTED":             {"EVICTED": 6},
		"2 FAILED, 1 LOST":      {"COMPLETED": 3, "FAILED": 2, "LOST": 1},
		"-":                     {"COMPLETED": 6},
		"INSUFFICIENT_CAPACITY": {"EVICTED": 6},
	} {
		r := &berthv1.Reservation{Job: "a", Stage: "b", State: berthv1.Reservation_COMPLETED, Count: 6, WorkerCounts: counts}
		if want == "INSUFFICIENT_CAPACITY" {
			r.Reason = proto.String(want)
		}
		lines := strings.Split(Reservations([]*berthv1.Reservation{r}, noon, false).String(), "\n")
		if !strings.HasSuffix(strings.TrimSpace(lines[1]), "  "+want) {
			t.Errorf("%v: %q, want %s", counts, lines[1], want)
		}
	}
}

// TestExecutorsShowTheEndOfADrain checks that an executor without workers is drained.
func TestExecutorsShowTheEndOfADrain(t *testing.T) {
	for workers, want := range []string{"READY,DRAINED", "READY,DRAINING"} {
		e := &berthv1.Executor{Id: "h", State: berthv1.Executor_READY, Draining: true, Workers: int32(workers)}
		if text := Executors([]*berthv1.Executor{e}, noon, false).String(); !strings.Contains(text, want) {
			t.Errorf("%d workers: want %s in\n%s", workers, want, text)
		}
	}
}

// TestLeadersNameUnreachableReplicas checks that the address replaces an unknown ID, that the cause
// is shown, and that nothing is said about the leader of a service that does not answer.
func TestLeadersNameUnreachableReplicas(t *testing.T) {
	list := Leaders([]*berthv1.ServiceLeadership{{Service: "registry", Replicas: []*berthv1.Replica{
		{Address: "10.0.0.1:7101", Role: berthv1.Replica_UNREACHABLE, Error: "connection refused"},
	}}}, noon, false)
	for _, want := range []string{"registry  10.0.0.1:7101  UNREACHABLE", "\n  connection refused\n",
		"registry  -              NO ANSWER"} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("%q is missing:\n%s", want, list)
		}
	}
}

// TestLeadersCountNoRevisionsWithoutView checks that a replica without a view is not behind.
func TestLeadersCountNoRevisionsWithoutView(t *testing.T) {
	list := Leaders([]*berthv1.ServiceLeadership{{Service: "registry", Replicas: []*berthv1.Replica{
		{Id: "a", Role: berthv1.Replica_STANDBY, NoView: true}, {Id: "b", Role: berthv1.Replica_STANDBY, Behind: 3},
	}}}, noon, false)
	for _, want := range []string{"no view yet", "  3\n"} {
		if !strings.Contains(list.String(), want) {
			t.Errorf("%q is missing:\n%s", want, list)
		}
	}
}

func TestExplain(t *testing.T) {
	queued := func(change func(*berthv1.Explanation)) *berthv1.Explanation {
		e := &berthv1.Explanation{
			Reservation: &berthv1.Reservation{Job: "a", Stage: "b", State: berthv1.Reservation_QUEUED}, Group: "g", Position: 1,
			Queued: 1,
			Age:    durationpb.New(time.Minute), Needed: 4, Fitting: 1, Missing: 3, ExecutorRevision: 9,
		}
		change(e)
		return e
	}
	for _, c := range []struct {
		name string
		e    *berthv1.Explanation
		want string
	}{
		{"some fit", queued(func(*berthv1.Explanation) {}),
			"a/b/main is pending: 1 of its 4 workers would fit now, 3 would not. It is the\nonly reservation in group g and has waited 1m.\n"},
		{"one that does not fit", queued(func(e *berthv1.Explanation) { e.Needed, e.Fitting, e.Missing = 1, 0, 1 }),
			"a/b/main is pending: its worker would not fit now. It is the only reservation in\ngroup g and has waited 1m.\n"},
		{"checks only if workers are missing", queued(func(e *berthv1.Explanation) {
			e.Fitting, e.Missing = 4, 0
			e.Checks = []*berthv1.FailedCheck{{Check: "sku", Count: 2}}
		}), "a/b/main is pending: all of its 4 workers would fit now. It is the only\nreservation in group g and has waited 1m.\n"},
		{"a default attribute", queued(func(e *berthv1.Explanation) {
			e.Fitting, e.Missing = 0, 4
			e.Checks = []*berthv1.FailedCheck{
				{Check: "attributes.arch", Want: "arm64", Have: "amd64", Count: 1},
				{Check: "attributes.zone", Want: "a", Have: "b", Count: 2, ByDefault: true},
			}
		}), "a/b/main is pending: none of its 4 workers would fit now. It is the only\nreservation in group g and has waited 1m.\n\n" +
			"No worker fits on 3 executors now. Their first failed checks:\n" +
			"  CHECK            WANTED          FOUND  EXECUTORS\n" +
			"  attributes.arch  arm64           amd64  1\n" +
			"  attributes.zone  a (by default)  b      2\n"},
		{"units of resources alone", queued(func(e *berthv1.Explanation) {
			e.Fitting, e.Missing, e.Reason = 0, 4, "NO_MATCHING_SKU"
			e.Checks = []*berthv1.FailedCheck{
				{Check: "sku", Want: "8000", Have: "4000", Count: 3}, {Check: "capacity.cpu", Want: "8000", Have: "4000", Count: 1},
			}
		}), `a/b/main is pending: none of its 4 workers would fit now. It is the only
reservation in group g and has waited 1m.
NO_MATCHING_SKU

No worker fits on 4 executors now. Their first failed checks:
  CHECK         WANTED  FOUND  EXECUTORS
  sku           8000    4000   3
  capacity.cpu  8       4      1
`},
		{"the scarcest resource", queued(func(e *berthv1.Explanation) { e.ScarcestResource = "memory" }),
			"a/b/main is pending: 1 of its 4 workers would fit now, 3 would not. It is the\nonly reservation in group g and has waited 1m.\nThe scarcest resource is memory: workers are placed where the least of it\nremains.\n"},
		{"ended", &berthv1.Explanation{
			Reservation: &berthv1.Reservation{Job: "a", Stage: "b", State: berthv1.Reservation_EXPIRED},
			Reason:      "QUEUE_TIMEOUT", Message: "it waited for 1m",
		}, "a/b/main is not pending: it is EXPIRED. QUEUE_TIMEOUT: it waited for 1m\n"},
		{"delayed", &berthv1.Explanation{
			Reservation: &berthv1.Reservation{Job: "a", Stage: "b", State: berthv1.Reservation_QUEUED},
			Reason:      "NOT_BEFORE", Message: "until 2026-03-01T13:00:00Z",
		}, "a/b/main is not in its queue yet. NOT_BEFORE: until 2026-03-01T13:00:00Z\n"},
	} {
		if got := Explain(c.e, noon); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

func TestParagraphs(t *testing.T) {
	text := strings.Repeat("word ", 40) + strings.Repeat("x", 100) + " and on"
	got := paragraph(text)
	for line := range strings.Lines(got) {
		if len(line) > 81 && !strings.HasPrefix(line, "xxx") {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	if strings.Join(strings.Fields(got), " ") != text {
		t.Errorf("words were lost: %s", got)
	}
}

func TestDescribeARequeuedVersion(t *testing.T) {
	r := &berthv1.Reservation{
		Job: "a", Stage: "b", State: berthv1.Reservation_QUEUED, Parent: proto.String("1-7"), Round: 1,
		Batch: berthv1.Batch_STRICT, Start: berthv1.Start_TOGETHER, OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY,
		MaxAttempts: proto.Int32(5),
	}
	got := Describe(r, nil, nil, noon)
	for _, want := range []string{"Parent       uid 1-7, requeued once\n",
		"Starts       STRICT, TOGETHER, on failure NOTIFY, 5 attempts\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	// A part of a batch has a parent but was not requeued. A requested reservation has no
	// parent.
	if got := parent(&berthv1.Reservation{Parent: proto.String("1-7")}); got != "uid 1-7" {
		t.Errorf("a part: %q", got)
	}
	if got := parent(&berthv1.Reservation{}) + starts(&berthv1.Reservation{}); got != "" {
		t.Errorf("a requested reservation: %q", got)
	}
}

// The details of a reservation say when it and its workers begin, end and are restarted.
func TestDescribeALifetime(t *testing.T) {
	r := &berthv1.Reservation{
		Job: "cache", Stage: "hot", Name: "s-1", Count: 1, NotBefore: timestamppb.New(noon.Add(-time.Hour)),
		ExpiresAt: timestamppb.New(noon.Add(90 * time.Minute)), QueueTimeout: durationpb.New(time.Minute),
		Lifetime: &berthv1.Lifetime{For: durationpb.New(time.Hour), From: "LIVE"},
		Restart:  proto.String("ALWAYS"), OnWorkerLoss: proto.String("REPLACE"), MaxRestarts: proto.Int32(5),
		Requeue: proto.String("BY_ORDER"),
		Task:    &berthv1.Task{StartTimeout: durationpb.New(time.Minute), Readiness: berthv1.Readiness_REPORTED.Enum()},
	}
	got := Describe(r, nil, nil, noon)
	for _, want := range []string{
		"Begins       not before 2026-03-01T11:00:00Z (1h ago), workers report when they are ready, start timeout 1m\n",
		"Expires      2026-03-01T13:30:00Z (in 1h30m), after 1m in the queue\n",
		"Lifetime     1h from LIVE\n",
		"Restarts     ALWAYS, on worker loss REPLACE, queued again BY_ORDER\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
	r.Task.StopSignal, r.Task.StopGrace = proto.String("SIGINT"), durationpb.New(90*time.Second)
	if got := Describe(r, nil, nil, noon); !strings.Contains(got, "Stops        SIGINT, killed after 1m30s\n") {
		t.Errorf("no stop signal in\n%s", got)
	}
	r.RestartExitCodes = &berthv1.RestartExitCodes{Retry: []int32{1, 75}, Fail: []int32{2}}
	if got := Describe(r, nil, nil, noon); !strings.Contains(got, "ALWAYS, only after exit 1 75, not after exit 2, on worker loss") {
		t.Errorf("no exit codes in\n%s", got)
	}
	r.RestartExitCodes, r.OnWorkerFailure, r.CompletesWith = nil, proto.String("FAIL_GANG"), []int32{0, 3}
	if got := Describe(r, nil, nil, noon); !strings.Contains(got, "REPLACE, on worker failure FAIL_GANG, completes with 0 3, queued") {
		t.Errorf("no policy for failures in\n%s", got)
	}
	r.OnWorkerFailure, r.CompletesWith = nil, nil
	r.Restart = proto.String("ON_FAILURE") // ALWAYS has no limit
	if got := Describe(r, nil, nil, noon); !strings.Contains(got, "ON_FAILURE, on worker loss REPLACE, at most 5 in a row, queued again BY_ORDER\n") {
		t.Errorf("no limit in\n%s", got)
	}
	if rows := Reservations([]*berthv1.Reservation{r}, noon, true).String(); !strings.Contains(rows, "T13:30:00Z") {
		t.Errorf("no expiry in %s", rows)
	}
}

// The details of a reservation have the requested volume.
func TestDescribeVolume(t *testing.T) {
	r := &berthv1.Reservation{Job: "db", Stage: "data", Count: 1,
		Constraints: &berthv1.Constraints{Resources: map[string]int64{"disk": 2 << 30}},
		Volume:      &berthv1.VolumeRequest{Resource: "disk"},
	}
	for want, v := range map[string]*berthv1.VolumeRequest{
		"Volume       disk 2Gi\n": {Resource: "disk"},
		"Volume       disk 2Gi, on loss REPLACE, kept for 1d\n": {Resource: "disk", OnLoss: proto.String("REPLACE"),
			KeepFor: durationpb.New(24 * time.Hour)},
	} {
		if r.Volume = v; !strings.Contains(Describe(r, nil, nil, noon), want) {
			t.Errorf("want %q in\n%s", want, Describe(r, nil, nil, noon))
		}
	}
}

// TestAvoidedExecutorsAreNamedWithTheirTime checks that each view of a queued reservation
// lists the executors that the reservation avoids, each with the time until which it
// avoids the executor.
func TestAvoidedExecutorsAreNamedWithTheirTime(t *testing.T) {
	avoided := []*berthv1.AvoidedExecutor{
		{Executor: "ex-1", Until: timestamppb.New(noon.Add(5 * time.Minute))},
		{Executor: "ex-2", Until: timestamppb.New(noon.Add(90 * time.Second))},
	}
	const want = "ex-1 until 2026-03-01T12:05:00Z, ex-2 until 2026-03-01T12:01:30Z"
	r := &berthv1.Reservation{Job: "a", Stage: "b", State: berthv1.Reservation_QUEUED, Avoided: avoided}
	for name, got := range map[string]string{
		"describe": Describe(r, nil, nil, noon),
		"explain":  Explain(&berthv1.Explanation{Reservation: r, Position: 1, Queued: 1, ExecutorRevision: 9}, noon),
		"pending":  Pending([]*berthv1.PendingGroup{{Id: "g", Avoided: avoided}}, noon, true).text(""),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s names no %q:\n%s", name, want, got)
		}
	}
}

func TestExecutorSharesOfRoles(t *testing.T) {
	e := &berthv1.Executor{
		Id: "ex-1", State: berthv1.Executor_READY, Resources: map[string]int64{"cpu": 8000, "slots": 4},
		Used:     map[string]int64{"cpu": 500, "slots": 1},
		Reserved: map[string]*berthv1.ResourceShare{"batch": {Resources: map[string]int64{"cpu": 2000}}},
	}
	const want = "  RESOURCE  TOTAL  USED  FOR batch\n  cpu       8      0.5   2\n  slots     4      1     0\n"
	if got := Executor(e, nil, nil, noon); !strings.Contains(got, want) {
		t.Errorf("got\n%s", got)
	}
}

func TestExecutorThatFailsStarts(t *testing.T) {
	e := &berthv1.Executor{Id: "ex-1", State: berthv1.Executor_READY,
		SkippedUntil: timestamppb.New(noon.Add(10 * time.Minute))}
	if got := Executors([]*berthv1.Executor{e}, noon, false).String(); !strings.Contains(got, "READY,FAILS_STARTS") {
		t.Errorf("got\n%s", got)
	}
	if got := Executor(e, nil, nil, noon); !strings.Contains(got, "until 2026-03-01T12:10:00Z: starts fail on the executor") {
		t.Errorf("got\n%s", got)
	}
}

func TestBounds(t *testing.T) {
	if got := bounds(2, nil) + " " + bounds(0, proto.Int32(0)) + " " + bounds(1, proto.Int32(8)); got != "2+ 0-0 1-8" {
		t.Errorf("got %s", got)
	}
}

func TestEvent(t *testing.T) {
	e := &berthv1.Event{
		Kind: berthv1.Event_WORKER_FAILED, Time: timestamppb.New(noon), Job: "a", Stage: "b", Reservation: "main",
		Reason: proto.String("EXITED"),
		Workers: []*berthv1.EventWorker{{Index: 2, Number: 1, Executor: proto.String("ex-1"), Reason: proto.String("EXITED"),
			ExitCode: proto.Int32(3)}},
	}
	const want = "12:00:00  WORKER_FAILED          b/main               2.1 on ex-1 exit 3  EXITED"
	if got := Event(e, noon); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	volume := &berthv1.Event{Kind: berthv1.Event_VOLUME_READY, Time: timestamppb.New(noon), Stage: "b",
		Workers: []*berthv1.EventWorker{{Index: 2, Executor: proto.String("ex-1")}}, Message: proto.String("volume 6b1f")}
	if got := Event(volume, noon); !strings.Contains(got, "  2 on ex-1  volume 6b1f") {
		t.Errorf("an event about a volume: %q", got)
	}
	e.Count = 300
	if got := Event(e, noon); !strings.Contains(got, "300 workers") || strings.Contains(got, "ex-1") {
		t.Errorf("the event of a large batch does not show the count: %q", got)
	}
	elsewhere := noon.In(time.FixedZone("", 3600))
	if got := Event(e, elsewhere); !strings.HasPrefix(got, "13:00:00") {
		t.Errorf("not in the location of now: %q", got)
	}
}

func TestWorkerSets(t *testing.T) {
	list := []*berthv1.WorkerID{{Index: 0, Number: 1}, {Index: 1, Number: 1}, {Index: 2, Number: 3}, {Index: 7, Number: 3}}
	const want = "0-1 number 1, 2 number 3, 7 number 3"
	if got := workerRuns(list); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLasting(t *testing.T) {
	group := func(age time.Duration, workers int32, revision int64) *berthv1.ListPendingAnswer {
		return &berthv1.ListPendingAnswer{Ready: true, Revision: revision,
			Groups: []*berthv1.PendingGroup{{Id: "g", Workers: workers, HeadAge: durationpb.New(age)}}}
	}
	if !proto.Equal(Lasting(group(1, 2, 3)), Lasting(group(4, 2, 6))) {
		t.Error("an age and a revision are no change")
	}
	if proto.Equal(Lasting(group(1, 2, 3)), Lasting(group(1, 5, 3))) {
		t.Error("more workers are a change")
	}
	before := group(1, 2, 3)
	Lasting(before)
	if before.Revision != 3 || before.Groups[0].HeadAge == nil {
		t.Error("the message itself was changed")
	}
}
