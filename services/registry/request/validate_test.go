package request

import (
	"errors"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/model"
	"berth.dev/pkg/resource"
)

func good() model.Upsert {
	return model.Upsert{
		Key: model.Key{Job: "job", Stage: "stage", Name: "main"}, Count: 2,
		Spec: model.Spec{Constraints: constraint.Constraints{
			Resources:  resource.Vector{"cpu": 0, "memory": 1 << 30},
			SKU:        "gpu-8",
			Attributes: map[string]string{"zone": "a b!"},
			Avoid:      []string{strings.Repeat("x", 253)},
			Spread:     constraint.Spread{By: "zone", Max: 1},
		}},
	}
}

// every returns n workers whose indexes are step apart.
func every(step, n int32) (workers []model.WorkerID) {
	for i := range n {
		workers = append(workers, model.WorkerID{Index: i * step, Number: 1})
	}
	return workers
}

// exitCodes requests that the exit codes of workers decide if they are restarted.
func exitCodes(retry, fail []int32) func(*model.Upsert) {
	return func(u *model.Upsert) {
		u.Spec.Restart, u.Spec.ExitCodes = model.RestartOnFailure, &model.ExitCodes{Retry: retry, Fail: fail}
	}
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(*model.Upsert){
		"unchanged":            func(*model.Upsert) {},
		"any order":            func(u *model.Upsert) { order := int64(-1 << 63); u.Spec.Priority.Order = &order },
		"the most workers":     func(u *model.Upsert) { u.Count = model.MaxWorkers },
		"equal target":         func(u *model.Upsert) { u.Spec.TargetSize = 2 },
		"the next worker":      func(u *model.Upsert) { u.Count, u.Workers = 0, []model.WorkerID{{Index: 7}} },
		"a worker":             func(u *model.Upsert) { u.Count, u.Workers = 0, []model.WorkerID{{Index: 7, Number: 1}} },
		"a name of 128":        func(u *model.Upsert) { u.Key.Job = strings.Repeat("a", 128) },
		"64 KiB of payload":    func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 64<<10) },
		"the longest command":  func(u *model.Upsert) { u.Spec.Task.Command = strings.Repeat("/", 4095) },
		"an empty argument":    func(u *model.Upsert) { u.Spec.Task.Args = []string{""} },
		"the longest argument": func(u *model.Upsert) { u.Spec.Task.Args = []string{strings.Repeat("x", 131_071)} },
		"the longest variable": func(u *model.Upsert) {
			u.Spec.Task.Env = map[string]string{"A": strings.Repeat("x", 131_069)}
		},
		"exit codes": exitCodes([]int32{0, 255}, []int32{1}),
		"a volume": func(u *model.Upsert) {
			u.Spec.Volume = &model.VolumeRequest{Resource: "memory", KeepFor: new(time.Duration)}
		},
		"a volume of the default slots": func(u *model.Upsert) { u.Spec.Volume = &model.VolumeRequest{Resource: "slots"} },
		"the most volumes": func(u *model.Upsert) {
			u.Count, u.Spec.Volume = 64*64, &model.VolumeRequest{Resource: "memory"}
		},
		"volumes in the most chunks": func(u *model.Upsert) {
			u.Count, u.Workers, u.Spec.Volume = 0, every(64, 64), &model.VolumeRequest{Resource: "memory"}
		},
	} {
		u := good()
		change(&u)
		if err := Validate(u); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	many := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m["k"+strconv.Itoa(i)] = ""
		}
		return m
	}
	for _, test := range []struct {
		change func(*model.Upsert)
		field  string
		reason fault.Reason
	}{
		{func(u *model.Upsert) { u.Key.Job = "" }, "job", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"BERTH_X": ""} }, "task.env.BERTH_X",
			fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"": "x"} }, "task.env", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"A=B": "x"} }, "task.env.A=B", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"A\x00": "x"} }, "task.env.A\x00", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"A": "x\x00"} }, "task.env.A", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.Env = map[string]string{"A": strings.Repeat("x", 131_070)} }, "task.env.A",
			fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Task.Command = "run\x00" }, "task.command", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.Command = strings.Repeat("/x", 2048) }, "task.command", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Task.Args = []string{"", "a\x00b"} }, "task.args[1]", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.Args = []string{strings.Repeat("x", 131_072)} }, "task.args[0]",
			fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Key.Stage = "-x" }, "stage", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Key.Name = "a/b" }, "name", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Key.Name = strings.Repeat("a", 129) }, "name", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Key.Name = "é" }, "name", fault.ReasonBadName},
		{func(u *model.Upsert) { u.RequestID = "a b" }, "requestId", fault.ReasonBadName},
		{func(u *model.Upsert) { u.IfEpoch = -1 }, "ifEpoch", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Count = 0 }, "workers", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Count = -1 }, "count", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Workers = []model.WorkerID{{Index: 1, Number: 1}} }, "count", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Count = 50_001 }, "count", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Count, u.Workers = 0, make([]model.WorkerID, 50_001) }, "workers", fault.ReasonTooLarge},
		{func(u *model.Upsert) {
			u.Count, u.Workers = 0, []model.WorkerID{{Index: 1, Number: 1}, {Index: -1, Number: 1}}
		}, "workers[1].index", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Count, u.Workers = 0, []model.WorkerID{{Index: 1, Number: -1}} }, "workers[0].number",
			fault.ReasonInvalid},
		{func(u *model.Upsert) {
			u.Count, u.Workers = 0, []model.WorkerID{{Index: 1, Number: 1}, {Index: 1, Number: 2}}
		}, "workers[1].index", fault.ReasonDuplicate},
		{func(u *model.Upsert) { u.Spec.Constraints.Resources = resource.Vector{"cpu": -1} }, "constraints.resources.cpu",
			fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Constraints.Resources = resource.Vector{"c p": 1} }, "constraints.resources.c p",
			fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Constraints.SKU = "_" }, "constraints.sku", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Constraints.Attributes = map[string]string{"Zone": "a", "zone": "b"} },
			"constraints.attributes.zone", fault.ReasonDuplicate},
		{func(u *model.Upsert) { u.Spec.Constraints.Attributes = map[string]string{"": "a"} }, "constraints.attributes",
			fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Constraints.Resources = resource.Vector{"": 1} }, "constraints.resources",
			fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Labels = map[string]string{"": "a"} }, "labels", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Constraints.Attributes = many(101) }, "constraints.attributes", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Constraints.Avoid = []string{"x", strings.Repeat("x", 254)} },
			"constraints.avoid[1]", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Constraints.Pools = []string{" "} }, "constraints.pools[0]", fault.ReasonBadName},
		{func(u *model.Upsert) { u.Spec.Constraints.Spread.Max = 0 }, "constraints.spread.max", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Constraints.Spread.Max = -1 }, "constraints.spread.max", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Constraints.Spread.By = "" }, "constraints.spread.by", fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.TargetSize = -1 }, "targetSize", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.TargetSize = 1 }, "targetSize", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Priority.Class = 9 }, "priority.class", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.MaxAttempts = -1 }, "maxAttempts", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.MaxAttempts = 101 }, "maxAttempts", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.QueueTimeout = -1 }, "queueTimeout", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.StopGrace = -1 }, "task.stopGrace", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.Payload = make([]byte, 64<<10+1) }, "task.payload", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Labels = many(65) }, "labels", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Lifetime = model.Lifetime{For: -1, From: model.FromLive} }, "lifetime.for",
			fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Lifetime.From = model.FromCreated }, "lifetime.for", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.MaxRestarts = new(int32(-1)) }, "maxRestarts", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.MaxRestarts = new(int32(101)) }, "maxRestarts", fault.ReasonTooLarge},
		{func(u *model.Upsert) {
			u.Spec.OnWorkerFailure, u.Spec.Batch = model.OnFailedRestart, model.BatchBestEffort
		}, "batch", fault.ReasonInvalid},
		{func(u *model.Upsert) {
			u.Spec.OnWorkerFailure, u.Spec.Restart = model.OnFailedRestart, model.RestartAlways
		}, "restart", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.CompletesWith = []int32{0, -1} }, "completesWith[1]", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.CompletesWith = []int32{0, 0} }, "completesWith[1]", fault.ReasonDuplicate},
		{func(u *model.Upsert) { u.Spec.CompletesWith = make([]int32, 65) }, "completesWith", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.ExitCodes = &model.ExitCodes{Fail: []int32{1}} }, "restartExitCodes",
			fault.ReasonInvalid},
		{exitCodes([]int32{1, -1}, nil), "restartExitCodes.retry[1]", fault.ReasonInvalid},
		{exitCodes(nil, []int32{256}), "restartExitCodes.fail[0]", fault.ReasonTooLarge},
		{exitCodes([]int32{1, 2}, []int32{3, 2}), "restartExitCodes.fail[1]", fault.ReasonDuplicate},
		{exitCodes([]int32{1, 1}, nil), "restartExitCodes.retry[1]", fault.ReasonDuplicate},
		{exitCodes(make([]int32, 65), nil), "restartExitCodes.retry", fault.ReasonTooLarge},
		{exitCodes(nil, make([]int32, 65)), "restartExitCodes.fail", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.Task.StartTimeout = 24*time.Hour + 1 }, "task.startTimeout", fault.ReasonTooLarge},
		{func(u *model.Upsert) { u.Spec.MaxRestarts, u.Spec.Task.StartTimeout = new(int32), -1 }, "task.startTimeout",
			fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.TargetSize, u.Spec.Shrink = 0, model.ShrinkHighest }, "targetSize",
			fault.ReasonRequired},
		{func(u *model.Upsert) { u.Spec.Task.StopSignal = model.SIGKILL }, "task.stopSignal", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Task.StopSignal = model.SIGSTOP }, "task.stopSignal", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Volume = &model.VolumeRequest{} }, "volume.resource", fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Volume = &model.VolumeRequest{Resource: "disk"} }, "volume.resource",
			fault.ReasonInvalid},
		{func(u *model.Upsert) { u.Spec.Volume = &model.VolumeRequest{Resource: "cpu"} }, "volume.resource",
			fault.ReasonInvalid},
		{func(u *model.Upsert) {
			u.Spec.Constraints.Resources["slots"], u.Spec.Volume = 0, &model.VolumeRequest{Resource: "slots"}
		}, "volume.resource", fault.ReasonInvalid},
		{func(u *model.Upsert) {
			u.Spec.Volume = &model.VolumeRequest{Resource: "memory", KeepFor: new(-time.Second)}
		}, "volume.keepFor", fault.ReasonInvalid},
		{func(u *model.Upsert) {
			u.Count, u.Spec.Volume = 64*64+1, &model.VolumeRequest{Resource: "memory"}
		}, "count", fault.ReasonTooLarge},
		{func(u *model.Upsert) {
			u.Count, u.Workers, u.Spec.Volume = 0, every(64, 65), &model.VolumeRequest{Resource: "memory"}
		}, "workers", fault.ReasonTooLarge},
	} {
		u := good()
		test.change(&u)
		err := Validate(u)
		if err == nil {
			t.Errorf("%s: accepted, want %s", test.field, test.reason)
			continue
		}
		e := fault.Of(err)
		if e.Kind != fault.Invalid || e.Reason != test.reason || len(e.Fields) != 1 || e.Fields[0].Name != test.field {
			t.Errorf("%s: got %v %+v, want %s", test.field, e, e.Fields, test.reason)
		}
	}
}

// A bind has the limits of an upsert.
func TestValidateChecksTheTaskOfABind(t *testing.T) {
	for field, task := range map[string]model.Task{
		"task.command": {Command: "run\x00"}, "task.args[0]": {Args: []string{"\x00"}},
	} {
		err := Validate(Bind{Key: model.Key{Job: "j", Stage: "s"}, Task: &task})
		if f := fault.Of(err); f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
}

// Linux starts what the limits allow, also all at once, and nothing longer.
func TestLimitsAreThoseOfLinux(t *testing.T) {
	run := func(args ...string) error { return exec.Command("true", args...).Run() }
	if os.Getpagesize() == 4096 { // the limit of an argument is 32 pages
		if err := run(strings.Repeat("x", maxArgument)); err != nil {
			t.Error(err)
		}
		if err := run(strings.Repeat("x", maxArgument+1)); !errors.Is(err, syscall.E2BIG) {
			t.Errorf("got %v, want E2BIG", err)
		}
	}
	// Short arguments take the most space for their pointers, compared with a request.
	spec := model.Spec{Task: model.Task{Args: make([]string, maxStored)}}
	n := sort.Search(maxStored, func(n int) bool {
		spec.Task.Args = spec.Task.Args[:n]
		return CheckSize(spec, model.WorkerSet{{}}, nil) != nil
	}) - 1
	if err := run(make([]string, n)...); err != nil {
		t.Errorf("%d arguments: %v", n, err)
	}
}

func TestValidateCancelWorkersNeedsANumber(t *testing.T) {
	f := fault.Of(Validate(CancelWorkers{Job: "j", Stage: "s", Workers: []model.WorkerID{{Index: 3}}}))
	if f == nil || f.Kind != fault.Invalid || f.Reason != fault.ReasonRequired || len(f.Fields) != 1 ||
		f.Fields[0].Name != "workers[0].number" {
		t.Errorf("got %v", f)
	}
}

// The registry stores the request ID of a cancel, so the ID has the same limit as that of
// an upsert.
func TestValidateChecksTheIDOfEveryRequest(t *testing.T) {
	long := strings.Repeat("x", 129)
	for _, request := range []any{
		Cancel{Key: model.Key{Job: "j", Stage: "s", Name: "main"}, RequestID: long},
		CancelJob{Job: "j", RequestID: long},
		CancelWorkers{Job: "j", Stage: "s", Workers: []model.WorkerID{{Index: 3, Number: 1}}, RequestID: long},
		Flush{Job: "j", RequestID: long},
	} {
		f := fault.Of(Validate(request))
		if f == nil || f.Reason != fault.ReasonBadName || len(f.Fields) != 1 || f.Fields[0].Name != "requestId" {
			t.Errorf("%T: got %v", request, f)
		}
	}
}

// A flush must name either a job or a group, but not both.
func TestValidateFlushNeedsOneTarget(t *testing.T) {
	for field, flush := range map[string]Flush{"job": {}, "group": {Job: "j", Group: "g"}} {
		if f := fault.Of(Validate(flush)); f == nil || f.Fields[0].Name != field {
			t.Errorf("%+v: got %v", flush, f)
		}
	}
}

// A request must not use a worker number that leaves no numbers for requeues.
func TestValidateLeavesNumbersForRequeues(t *testing.T) {
	u := good()
	u.Count, u.Workers = 0, []model.WorkerID{{Index: model.MaxIndex, Number: model.MaxRequested}}
	if err := Validate(u); err != nil {
		t.Errorf("the highest index and number that are allowed: %v", err)
	}
	u.Workers[0].Number++
	want := "workers[0].number: must be between 1 and 1000000000, got 1000000001"
	if f := fault.Of(Validate(u)); f == nil || f.Reason != fault.ReasonTooLarge || f.Message != want {
		t.Errorf("a number above: %v, want %s", f, want)
	}
	if model.MaxNumber-model.MaxRequested < 1_000*model.MaxMaxAttempts {
		t.Error("too few numbers are left for requeues")
	}
}
