package model

import (
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// edges has all transitions: a row for each state, a column for each next state, and x for
// an allowed transition.
const edges = `
            UNSET ASSIGNED STARTING RUNNING EVICT EVICTING COMPLETED FAILED LOST EVICTED
UNSET       .     .        .        .       .     .        .         .      .    .
ASSIGNED    .     .        x        x       x     .        x         x      x    x
STARTING    .     .        .        x       x     .        x         x      x    x
RUNNING     .     .        .        .       x     .        x         x      x    x
EVICT       .     .        .        .       .     x        x         x      x    x
EVICTING    .     .        .        .       .     .        x         x      x    x
COMPLETED   .     .        .        .       .     .        .         .      .    .
FAILED      .     .        .        .       .     .        .         .      .    .
LOST        .     .        .        .       .     .        .         .      .    .
EVICTED     .     .        .        .       .     .        .         .      .    .
`

func TestWorkerStatesMoveForwardOnly(t *testing.T) {
	rows := strings.Split(strings.TrimSpace(edges), "\n")
	columns := strings.Fields(rows[0])
	if len(columns) != int(WorkerEvicted)+1 || len(rows) != len(columns)+1 {
		t.Fatalf("the table has %d rows and %d columns", len(rows)-1, len(columns))
	}
	for from, row := range rows[1:] {
		cells := strings.Fields(row)
		if name := WorkerState(from).String(); cells[0] != columns[from] || from > 0 && cells[0] != name {
			t.Fatalf("row %d is %s, the state is %q", from, cells[0], name)
		}
		for next, cell := range cells[1:] {
			if got := WorkerState(from).MayBecome(WorkerState(next)); got != (cell == "x") {
				t.Errorf("%s may become %s: %v", columns[from], columns[next], got)
			}
		}
	}
}

func TestEndedStatesAreFinal(t *testing.T) {
	for s := WorkerAssigned; s <= WorkerEvicted; s++ {
		leads := false
		for next := WorkerAssigned; next <= WorkerEvicted; next++ {
			leads = leads || s.MayBecome(next)
		}
		if leads == s.Terminal() {
			t.Errorf("%s: terminal %v, leads on %v", s, s.Terminal(), leads)
		}
	}
}

// A worker moves with its executor. A worker that failed, or that could not be started, does not.
func TestMoved(t *testing.T) {
	ran := InstantOf(time.Unix(1, 0))
	for _, tt := range []struct {
		w    TaskWorker
		want bool
	}{
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonExecutorLost}, true},
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonNotReported, RunningSince: ran}, true},
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonQuarantineCleared}, true},
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonAttemptsExhausted}, false},
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonExecutorRefuses}, false},
		{TaskWorker{State: WorkerLost, Reason: fault.ReasonRoundsExhausted}, false},
		{TaskWorker{State: WorkerEvicted, Reason: fault.ReasonExecutorDraining}, true},
		{TaskWorker{State: WorkerEvicted, Reason: fault.ReasonStopped}, true},
		{TaskWorker{State: WorkerEvicted, Reason: fault.ReasonCancelled}, false},
		{TaskWorker{State: WorkerEvicted, Reason: fault.ReasonNotTogether}, false},
		{TaskWorker{State: WorkerEvict, Reason: fault.ReasonExecutorDraining}, false},
		{TaskWorker{State: WorkerFailed, Reason: fault.ReasonCellWorkerLost, RunningSince: ran}, true},
		{TaskWorker{State: WorkerFailed, Reason: fault.ReasonCellWorkerLost}, false},
		{TaskWorker{State: WorkerFailed, Reason: fault.ReasonExited, RunningSince: ran}, false},
		{TaskWorker{State: WorkerCompleted, RunningSince: ran}, false},
	} {
		if got := tt.w.Moved(); got != tt.want {
			t.Errorf("%s %s, ran %v: %v", tt.w.State, tt.w.Reason, !tt.w.RunningSince.IsZero(), got)
		}
	}
}
