package jobfile

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

func TestParse(t *testing.T) {
	const file = `
---
# The first document is empty.
---
job: train
stage: gpu
count: 0x10
constraints:
  resources: {cpu: 2, memory: "4294967296"}
  attributes: {zone: a}
priority: {class: SCALE, order: -3}
task: {command: run, args: [a, "1"], payload: aGVsbG8=, stopGrace: 1.5s}
labels: {day: "2026-01-02"}
---
{"job": "train", "stage": "eval", "workers": [{"index": 3, "number": 2}], "ifEpoch": "12"}
---
job: train
stage: other
count: 1
constraints:
  <<: {pack: true, sku: small}
  sku: big
---
job: search
stage: replica
name: hour-7
count: 1
task: {startTimeout: 5m, readiness: REPORTED, stopSignal: QUIT}
expireAt: 2026-01-02T03:04:05Z
notBefore: "2026-01-01T00:00:00Z"
lifetime: {for: 1h, from: LIVE}
restart: ON_FAILURE
onWorkerLoss: REPLACE
maxRestarts: 5
requeue: BY_ORDER
restartExitCodes: {retry: [1, 75], fail: [2]}
onWorkerFailure: RESTART_GANG
completesWith: [0]
shrink: STOP_HIGHEST
---
job: db
stage: data
count: 2
constraints: {resources: {cpu: 1, disk: 2Gi}}
volume: {resource: disk, onLoss: REPLACE, keepFor: 24h}
`
	documents, err := Parse("jobs.yaml", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []*berthv1.Reservation{
		{
			Job: "train", Stage: "gpu", Count: 16,
			Constraints: &berthv1.Constraints{
				Resources:  map[string]int64{"cpu": 2000, "memory": 4 << 30},
				Attributes: map[string]string{"zone": "a"},
			},
			Priority: &berthv1.Priority{Class: berthv1.PriorityClass_SCALE, Order: proto.Int64(-3)},
			Task: &berthv1.Task{
				Command: "run", Args: []string{"a", "1"}, Payload: []byte("hello"),
				StopGrace: &durationpb.Duration{Seconds: 1, Nanos: 5e8},
			},
			Labels: map[string]string{"day": "2026-01-02"},
		},
		{Job: "train", Stage: "eval", Workers: []*berthv1.WorkerID{{Index: 3, Number: 2}}, IfEpoch: proto.Int64(12)},
		{Job: "train", Stage: "other", Count: 1, Constraints: &berthv1.Constraints{Pack: true, Sku: "big"}},
		{
			Job: "search", Stage: "replica", Name: "hour-7", Count: 1,
			Task: &berthv1.Task{StartTimeout: durationpb.New(5 * time.Minute), Readiness: berthv1.Readiness_REPORTED.Enum(),
				StopSignal: proto.String("QUIT")},

			ExpireAt:     timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
			NotBefore:    timestamppb.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
			Lifetime:     &berthv1.Lifetime{For: durationpb.New(time.Hour), From: "LIVE"},
			Restart:      proto.String("ON_FAILURE"),
			OnWorkerLoss: proto.String("REPLACE"),
			MaxRestarts:  proto.Int32(5),
			Requeue:      proto.String("BY_ORDER"),

			OnWorkerFailure:  proto.String("RESTART_GANG"),
			CompletesWith:    []int32{0},
			Shrink:           proto.String("STOP_HIGHEST"),
			RestartExitCodes: &berthv1.RestartExitCodes{Retry: []int32{1, 75}, Fail: []int32{2}},
		},
		{
			Job: "db", Stage: "data", Count: 2,
			Constraints: &berthv1.Constraints{Resources: map[string]int64{"cpu": 1000, "disk": 2 << 30}},
			Volume: &berthv1.VolumeRequest{
				Resource: "disk", OnLoss: proto.String("REPLACE"), KeepFor: durationpb.New(24 * time.Hour),
			},
		},
	}
	var got []*berthv1.Reservation
	for _, d := range documents {
		got = append(got, d.Reservation)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if place := documents[1].Place; place != "jobs.yaml, document 3" {
		t.Errorf("place of the second reservation: %s", place)
	}
}

func TestParseStripsOutputFields(t *testing.T) {
	const printed = `
reservations:
  - {job: a, stage: b, name: main, count: 1, workers: [{index: 3, number: 2}], requestId: r, ifEpoch: 7,
     uid: 1-1, epoch: "5", state: QUEUED, reason: BEHIND_HEAD, position: 2, createdAt: "2026-01-02T03:04:05Z",
     updatedAt: 2026-01-02T03:04:05Z, workerCounts: {RUNNING: 1}, change: CREATED, message: m}
  - {job: a, stage: c, count: 2, uid: ""}
nextPageToken: ""
revision: "9"
`
	documents, err := Parse("-", strings.NewReader(printed))
	if err != nil {
		t.Fatal(err)
	}
	want := []Document{
		{
			Place: "-, document 1, item 1", UID: "1-1",
			Reservation: &berthv1.Reservation{
				Job: "a", Stage: "b", Name: "main", Workers: []*berthv1.WorkerID{{Index: 3, Number: 2}}, IfEpoch: proto.Int64(7),
			},
		},
		{Place: "-, document 1, item 2", Reservation: &berthv1.Reservation{Job: "a", Stage: "c", Count: 2}},
	}
	if diff := cmp.Diff(want, documents, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestResourcesAreQuantities checks that resources are quantities and that durations have
// the format of Go.
func TestResourcesAreQuantities(t *testing.T) {
	const file = `
job: a
stage: b
count: 1
constraints:
  resources: {cpu: 2, memory: 4Gi, disk: "1.5Ti", gpu: 0x8, tokens: 2k}
task: {stopGrace: 1m30s}
queueTimeout: 10m
---
job: a
stage: c
count: 1
constraints: {resources: {cpu: 0.5, memory: 4}}
---
{job: a, stage: d, count: 1, constraints: {resources: {cpu: "500m"}}}
---
kind: sku
name: s
resources: {cpu: 5m}
---
kind: pool
name: p
lostAfter: 2m
`
	documents, err := Parse("f", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	r := documents[0].Reservation
	if diff := cmp.Diff(map[string]int64{"cpu": 2000, "memory": 4 << 30, "disk": 3 << 39, "gpu": 8, "tokens": 2000},
		r.Constraints.Resources); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if r.QueueTimeout.GetSeconds() != 600 || r.Task.StopGrace.GetSeconds() != 90 ||
		documents[4].Pool.LostAfter.GetSeconds() != 120 {
		t.Errorf("durations: %v, %v, %v", r.QueueTimeout, r.Task.StopGrace, documents[4].Pool.LostAfter)
	}
	if diff := cmp.Diff(map[string]int64{"cpu": 500, "memory": 4},
		documents[1].Reservation.Constraints.Resources); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := documents[2].Reservation.Constraints.Resources["cpu"]; got != 500 {
		t.Errorf(`"500m" is %d`, got)
	}
	for i, want := range []string{"", "constraints.resources.memory: 4 bytes is less than 1Mi", "",
		"resources.cpu: 5m is less than 10m", ""} {
		got := strings.Join(documents[i].Warnings, "\n")
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("document %d: warnings %q, want %q", i+1, got, want)
		}
	}
}

// TestPrintedBaseUnitsKeepTheirMeaning checks that base units, which REST returns as
// strings, keep their meaning in a file, even if an edit adds plain numbers to the same
// document.
func TestPrintedBaseUnitsKeepTheirMeaning(t *testing.T) {
	for text, want := range map[string]int64{
		`{"job":"a","stage":"b","count":1,"constraints":{"resources":{"cpu":"2000"}},"uid":"1-1","updatedAt":"2026-01-02T03:04:05Z"}`: 2000,
		`{"job":"a","stage":"b","count":1,"constraints":{"resources":{"cpu":"2000m"}},"updatedAt":"2026-01-02T03:04:05Z"}`:            2000,
		`{"job":"a","stage":"b","count":1,"constraints":{"resources":{"cpu":4}},"updatedAt":"2026-01-02T03:04:05Z"}`:                  4000,
		`{"job":"a","stage":"b","count":1,"constraints":{"resources":{"cpu":"2"}}}`:                                                   2000,
	} {
		documents, err := Parse("f", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := documents[0].Reservation.Constraints.Resources["cpu"]; got != want {
			t.Errorf("%s: cpu is %d, want %d", text, got, want)
		}
	}
}

// TestParseModes checks that a job file uses the names of the API for the start of a batch.
func TestParseModes(t *testing.T) {
	const file = `
kind: reservation
job: train
stage: gpu
count: 2
constraints: {pools: [night, spare], role: batch}
batch: BEST_EFFORT
start: TOGETHER
onAssignmentFailure: NOTIFY
maxAttempts: 5
`
	documents, err := Parse("f", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Document{{Place: "f, document 1", Reservation: &berthv1.Reservation{
		Job: "train", Stage: "gpu", Count: 2,
		Constraints: &berthv1.Constraints{Pools: []string{"night", "spare"}, Role: "batch"},
		Batch:       berthv1.Batch_BEST_EFFORT, Start: berthv1.Start_TOGETHER,
		OnAssignmentFailure: berthv1.OnAssignmentFailure_NOTIFY, MaxAttempts: proto.Int32(5),
	}}}
	if diff := cmp.Diff(want, documents, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseTheCatalog(t *testing.T) {
	const file = `
kind: sku
name: gpu-8
resources: {cpu: 64, gpu: 8}
attributes: {arch: arm64}
scale: {minIdle: 1, maxIdle: 0, cooldown: 15m, holdUntil: 2026-01-02T03:04:05Z}
updatedAt: 2026-01-02T03:04:05Z
---
name: night
kind: pool
attributes: {zone: a}
lostAfter: 0s
---
skus:
  - {name: small, resources: {cpu: "1000"}, updatedAt: "2026-01-02T03:04:05Z"}
---
pools:
  - {name: a}
  - {name: b, kind: pool}
`
	documents, err := Parse("f", strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	want := []Document{
		{Place: "f, document 1", SKU: &berthv1.Sku{
			Name: "gpu-8", Resources: map[string]int64{"cpu": 64000, "gpu": 8}, Attributes: map[string]string{"arch": "arm64"},
			Scale: &berthv1.ScaleRule{MinIdle: 1, MaxIdle: proto.Int32(0),
				Cooldown:  durationpb.New(15 * time.Minute),
				HoldUntil: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))},
		}},
		{Place: "f, document 2", Pool: &berthv1.Pool{Name: "night", Attributes: map[string]string{"zone": "a"},
			LostAfter: &durationpb.Duration{}}},
		{Place: "f, document 3, item 1", SKU: &berthv1.Sku{Name: "small", Resources: map[string]int64{"cpu": 1000}}},
		{Place: "f, document 4, item 1", Pool: &berthv1.Pool{Name: "a"}},
		{Place: "f, document 4, item 2", Pool: &berthv1.Pool{Name: "b"}},
	}
	if diff := cmp.Diff(want, documents, protocmp.Transform()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseRejects(t *testing.T) {
	for _, c := range []struct{ name, file, want, field string }{
		{"nothing", "# only a comment\n", "f: the file contains no document", ""},
		{"no mapping", "- a\n", "f, document 1, line 1: it must be a mapping of keys to values", ""},
		{"no job", "stage: a\n", "f, document 1: job is missing", "job"},
		{"no stage", "job: a\n", "f, document 1: stage is missing", "stage"},
		{"unknown key", "job: a\njbo: b\n", "f, document 1, line 2: jbo is not a field; did you mean job?", "jbo"},
		{"far-off key", "replicas: 3\n", "f, document 1, line 1: replicas is not a field", "replicas"},
		{"unknown nested key", "workers: [{index: 1}, {indx: 2}]\n",
			"f, document 1, line 1: workers[1].indx is not a field; did you mean index?", "workers[1].indx"},
		{"leading zero", "count: 0012\n",
			"f, document 1, line 1: count must be a number without a leading zero, or text in quotes, got 0012", "count"},
		{"key given twice", "job: a\njob: b\n", "f, document 1, line 2: job is given twice", "job"},
		{"two spellings of a key", "job: a\nrequestId: r\nrequest_id: s\n",
			"f, document 1, line 3: request_id is given twice", "request_id"},
		{"key of a merge given twice", "labels: {<<: {a: b, a: c}}\n", "f, document 1, line 1: labels.a is given twice",
			"labels.a"},
		{"merge that is no mapping", "labels:\n  <<: a\n", "f, document 1, line 2: labels must be a mapping", "labels"},
		{"word for a number", "count: many\n", "f, document 1, line 1: count must be a whole number", "count"},
		{"too large a number", "count: 3000000000\n", "f, document 1, line 1: count must be a whole number", "count"},
		{"number for a string", "labels: {port: 80}\n",
			"f, document 1, line 1: labels must be a mapping, each value a string (quote it)", "labels"},
		{"string for a list", "task: {args: run}\n",
			"f, document 1, line 1: task.args must be a list, each item a string", "task.args"},
		{"mapping for a word", "restart: {policy: ON_FAILURE}\n",
			"f, document 1, line 1: restart must be one of NEVER, ON_FAILURE, ALWAYS", "restart"},
		{"number for a signal", "task: {stopSignal: 15}\n",
			"f, document 1, line 1: task.stopSignal must be one of ABRT, ALRM, ", "task.stopSignal"},
		{"mapping for messages", "workers: {index: 1}\n", "f, document 1, line 1: workers must be a list", "workers"},
		{"wrong word", "priority: {class: URGENT}\n",
			"f, document 1, line 1: priority.class must be one of REPLACE, SCALE, NEW_JOB", "priority.class"},
		{"wrong duration", "queueTimeout: 5 minutes\n",
			`f, document 1, line 1: queueTimeout must be a duration such as "30s", "10m" or "1h30m"`, "queueTimeout"},
		{"duration without a unit", "queueTimeout: 90\n",
			`f, document 1, line 1: queueTimeout must be a duration such as "30s", "10m" or "1h30m"`, "queueTimeout"},
		{"duration that is a list", "queueTimeout: [1s]\n",
			`f, document 1, line 1: queueTimeout must be a duration such as "30s", "10m" or "1h30m"`, "queueTimeout"},
		{"thousandths of a core as cores", "constraints: {resources: {cpu: 8000}}\n",
			"f, document 1, line 1: constraints.resources.cpu must be at most 4096 cores, got 8000; a number without a suffix is in cores, and 2000m is two", "constraints.resources.cpu"},
		{"part of a byte", "constraints:\n  resources: {memory: 0.5}\n",
			"f, document 1, line 2: constraints.resources.memory must be a whole number of bytes, got 0.5",
			"constraints.resources.memory"},
		{"no quantity", "constraints: {resources: {memory: 4GB}}\n",
			`f, document 1, line 1: constraints.resources.memory must be a quantity such as 4Gi or 512Mi, got "4GB"`,
			"constraints.resources.memory"},
		{"a list for a quantity", "kind: sku\nname: a\nresources: {cpu: [1]}\n",
			"f, document 1, line 3: resources.cpu must be a quantity", "resources.cpu"},
		{"negative quantity", "constraints: {resources: {gpu: -1}}\n",
			"f, document 1, line 1: constraints.resources.gpu must not be negative, got -1", "constraints.resources.gpu"},
		{"truth", "constraints: {pack: maybe}\n", "f, document 1, line 1: constraints.pack must be true or false",
			"constraints.pack"},
		{"unknown kind", "kind: host\nname: a\n", "f, document 1, line 1: kind must be one of reservation, sku, pool",
			"kind"},
		{"kind given twice", "kind: sku\nname: a\nkind: pool\n", "f, document 1, line 3: kind is given twice", "kind"},
		{"a SKU without a name", "kind: sku\nresources: {cpu: 1}\n", "f, document 1: name is missing", "name"},
		{"a pool without a name", "kind: pool\n", "f, document 1: name is missing", "name"},
		{"unknown key of a SKU", "kind: sku\nname: a\nscale: {minidle: 1}\n",
			"f, document 1, line 3: scale.minidle is not a field; did you mean minIdle?", "scale.minidle"},
		{"a pool's key in a SKU", "kind: sku\nname: a\nlostAfter: 1s\n", "f, document 1, line 3: lostAfter is not a field",
			"lostAfter"},
		{"kind is no field of a reservation's parts", "job: a\nstage: b\ntask: {kind: sku}\n",
			"f, document 1, line 3: task.kind is not a field", "task.kind"},
		{"wrong mode", "job: a\nstage: b\nbatch: LOOSE\n", "f, document 1, line 3: batch must be one of STRICT, BEST_EFFORT",
			"batch"},
		{"second document", "job: a\nstage: b\n---\nfoo: 1\n", "f, document 2, line 4: foo is not a field", "foo"},
		{"an alias of itself", "labels: &x {a: *x}\n", "f, document 1, line 1: labels.a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("f", strings.NewReader(c.file))
			f := fault.Of(err)
			if f == nil || f.Kind != fault.Invalid || !strings.HasPrefix(f.Message, c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if c.field != "" && (len(f.Fields) != 1 || f.Fields[0].Name != c.field) {
				t.Errorf("fields %v, want %s", f.Fields, c.field)
			}
		})
	}
	for file, want := range map[string]bool{"task: {command: 7}": true, "task: {command: [run]}": false,
		"task: {args: run}": false, "task: {args: [a, {b: c}]}": false, "task: {args: [1]}": true,
		"labels: {a: {b: c}}":    false,
		"labels: {a: yes, b: 1}": true, "labels: [a]": false, "lifetime: {from: [LIVE]}": false} {
		_, err := Parse("f", strings.NewReader(file))
		if got := strings.Contains(fmt.Sprint(err), "quote it"); got != want || err == nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := Parse("f", strings.NewReader("job: [a\n")); fault.Of(err).Kind != fault.Invalid {
		t.Errorf("broken YAML: %v", err)
	}
}

// TestAMappingOfManyKeysTakesLinearTime checks that the time for a mapping is linear in
// the number of its keys.
func TestAMappingOfManyKeysTakesLinearTime(t *testing.T) {
	var file strings.Builder
	file.WriteString("job: a\nstage: b\nlabels:\n")
	for i := range 100_000 {
		fmt.Fprintf(&file, "  k%d: v\n", i)
	}
	if d, err := Parse("f", strings.NewReader(file.String())); err != nil || len(d[0].Reservation.Labels) != 100_000 {
		t.Errorf("%v", err)
	}
}
