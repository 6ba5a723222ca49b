package sim

import (
	"io"
	"slices"
	"testing"
	"time"

	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
)

// The answer to a report that the agent has given up says nothing about the newer one. If the
// newer report is lost, the agent repeats it.
func TestLateAnswerConfirmsNoNewerReport(t *testing.T) {
	w := newWorld(1, io.Discard)
	w.faultsStopped, w.directed = true, true
	a := newAgent(w, hostWithSlots("host", 1))
	a.recover()
	a.incarnation, a.dirty = 1, true
	w.agents = []*agent{a}
	var reported []int64 // the sequences of the reports that have arrived, without repeats
	var answerFirst func(any, error)
	take := func(request any, _ time.Time, answer func(any, error)) {
		r := request.(dispatch.Report)
		if !slices.Contains(reported, r.Sequence) {
			reported = append(reported, r.Sequence)
		}
		if r.Sequence == reported[0] {
			answerFirst = answer
		}
	}
	w.replicas[model.ServiceAssigner] = []replica{manualLeader{take: take}}
	if !w.until(func() bool { return len(reported) == 2 }) {
		t.Fatalf("reports %v arrived, want two", reported)
	}
	second := func() { w.within(time.Second, func() bool { return false }) }
	answerFirst(dispatch.Reported{}, nil)
	second()
	a.partitioned = true // the calls in flight end
	second()
	a.partitioned = false
	if !w.until(func() bool { return len(reported) == 3 }) {
		t.Errorf("the agent does not repeat report %d, which was not answered", reported[1])
	}
}
