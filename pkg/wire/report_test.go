package wire_test

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
	"berth.dev/pkg/wire"
)

func goodReport() *controlv1.ExecutorReport {
	code := int32(9)
	return &controlv1.ExecutorReport{Executor: "e", Incarnation: 3, Sequence: 1, Workers: []*controlv1.WorkerReport{
		{Job: "j", Stage: "s", Epoch: 5, Uid: "5-1", State: berthv1.Assignment_RUNNING},
		{Job: "j", Stage: "s", Index: 1, Epoch: 5, Uid: "5-1", State: berthv1.Assignment_FAILED, ExitCode: &code,
			Error: "exited with 9"},
	}}
}

// If a report has an invalid field, it is refused, and the error names the first invalid
// field.
func TestAReportIsCheckedBeforeItIsUsed(t *testing.T) {
	if err := wire.CheckReport(goodReport()); err != nil {
		t.Fatal(err)
	}
	code := int32(1)
	for field, change := range map[string]func(*controlv1.ExecutorReport){
		"report.executor":    func(r *controlv1.ExecutorReport) { r.Executor = "../e" },
		"report.incarnation": func(r *controlv1.ExecutorReport) { r.Incarnation = 0 },
		"report.sequence":    func(r *controlv1.ExecutorReport) { r.Sequence = math.MaxInt64 },
		"report.workers": func(r *controlv1.ExecutorReport) {
			r.Workers = make([]*controlv1.WorkerReport, wire.MaxReportedWorkers+1)
		},
		"report.workers[1]":           func(r *controlv1.ExecutorReport) { r.Workers[1] = nil },
		"report.workers[0].job":       func(r *controlv1.ExecutorReport) { r.Workers[0].Job = strings.Repeat("j", 129) },
		"report.workers[0].stage":     func(r *controlv1.ExecutorReport) { r.Workers[0].Stage = "" },
		"report.workers[0].index":     func(r *controlv1.ExecutorReport) { r.Workers[0].Index = -1 },
		"report.workers[0].number":    func(r *controlv1.ExecutorReport) { r.Workers[0].Number = -1 },
		"report.workers[0].epoch":     func(r *controlv1.ExecutorReport) { r.Workers[0].Epoch = 0 },
		"report.workers[0].uid":       func(r *controlv1.ExecutorReport) { r.Workers[0].Uid = strings.Repeat("u", 129) },
		"report.workers[0].error":     func(r *controlv1.ExecutorReport) { r.Workers[0].Error = strings.Repeat("x", 65<<10) },
		"report.workers[0].exit_code": func(r *controlv1.ExecutorReport) { r.Workers[0].ExitCode = &code },
	} {
		r := goodReport()
		change(r)
		f := fault.Of(wire.CheckReport(r))
		if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != field {
			t.Errorf("%s: %v", field, f)
		}
	}
	if wire.CheckReport(nil) == nil {
		t.Error("no report is a report")
	}
}

// If an answer of a cell has an invalid field, all answers of the message are refused, and the error
// names the field.
func TestAnswersToOffersAreCheckedBeforeTheyAreUsed(t *testing.T) {
	good := func() *controlv1.OfferAnswer {
		return &controlv1.OfferAnswer{Uid: "5-1", Number: 7, State: berthv1.CellOffer_ACCEPTED, Rating: 100}
	}
	if err := wire.CheckOfferAnswers([]*controlv1.OfferAnswer{good()}); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*controlv1.OfferAnswer){
		"uid":    func(a *controlv1.OfferAnswer) { a.Uid = "../5-1" },
		"number": func(a *controlv1.OfferAnswer) { a.Number = -1 },
		"state":  func(a *controlv1.OfferAnswer) { a.State = berthv1.CellOffer_BOUND },
		"rating": func(a *controlv1.OfferAnswer) { a.Rating = 101 },
		"reason": func(a *controlv1.OfferAnswer) { a.Reason = strings.Repeat("x", model.MaxRefusal+1) },
	} {
		bad := good()
		change(bad)
		f := fault.Of(wire.CheckOfferAnswers([]*controlv1.OfferAnswer{good(), bad}))
		if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != "answers[1]."+field {
			t.Errorf("%s: %v", field, f)
		}
	}
	if wire.CheckOfferAnswers([]*controlv1.OfferAnswer{nil}) == nil ||
		wire.CheckOfferAnswers(make([]*controlv1.OfferAnswer, wire.MaxOfferAnswers+1)) == nil {
		t.Error("no answer, or too many, are accepted")
	}
	long := good()
	long.Message = strings.Repeat("ä", model.MaxRefusal)
	if got := wire.OfferAnswerOf(long); len(got.Message) > model.MaxRefusal+len("…") || got.Rating != 100 {
		t.Errorf("the message has %d bytes", len(got.Message))
	}
}

// A state that only a newer agent knows counts as unset, whatever its low 8 bits are.
func TestAnUnknownStateIsUnset(t *testing.T) {
	for _, s := range []berthv1.Assignment_State{-1, 256 + berthv1.Assignment_COMPLETED, 4711, 0} {
		if got := wire.WorkerState(s); got != model.WorkerUnset {
			t.Errorf("%d is %v", s, got)
		}
	}
	for s := range berthv1.Assignment_State_name {
		if got := wire.WorkerState(berthv1.Assignment_State(s)); int32(got) != s {
			t.Errorf("%d is %v", s, got)
		}
	}
}

// If a report passes the check, it is within the limits that its users rely on.
func FuzzExecutorReport(f *testing.F) {
	for _, r := range []*controlv1.ExecutorReport{
		goodReport(), {}, {Executor: "e", Incarnation: 1, Sequence: 1, Complete: true,
			Workers: []*controlv1.WorkerReport{{}}},
		{Executor: "e", Incarnation: math.MaxInt64, Sequence: math.MaxInt64,
			Workers: []*controlv1.WorkerReport{{Job: "j", Stage: "s", Epoch: 1, State: 4711}}},
	} {
		text, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &controlv1.ExecutorReport{}
		if proto.Unmarshal(text, r) != nil || wire.CheckReport(r) != nil {
			return
		}
		if r.GetIncarnation() <= 0 || r.GetSequence() < 0 || len(r.GetExecutor()) > 253 || r.GetExecutor() == "" {
			t.Errorf("passed: %v", r)
		}
		for _, w := range r.GetWorkers() {
			state := wire.WorkerState(w.GetState())
			_ = state.String() // must not panic
			if w.GetIndex() < 0 || w.GetNumber() < 0 || w.GetEpoch() <= 0 ||
				strings.ContainsAny(w.GetJob()+w.GetStage(), "/\x00") {
				t.Errorf("passed: %v", w)
			}
		}
	})
}
