package scenario

import (
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/cmd/berth/fleet"
)

// A real agent starts only programs, and says so when it registers. So a bind without a command is refused
// with the field, and the reservation stays held until a bind has one. Simulated executors start any task.
func TestABindNeedsACommandForAnAgent(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{LogLevel: "warn"})
	w.startAgents(fleet.Agent{ID: "host", Slots: 1})
	w.startSim("sim", 1, 2)
	w.awaitReady(2)
	for count, refused := range map[int32]bool{1: true, 2: false} {
		r := &berthv1.Reservation{Job: "noon", Stage: "batch", Count: count, Hold: berthv1.Hold_HOLD.Enum(),
			Constraints: &berthv1.Constraints{Sku: "sim"}}
		if refused {
			r.Stage, r.Constraints.Sku = "agent", ""
			r.Constraints.Avoid = []string{"sim-0"}
		}
		w.upsert(r)
		w.await(r, berthv1.Reservation_HELD)
		bind := &berthv1.BindReservationRequest{Job: r.GetJob(), Stage: r.GetStage(), Task: &berthv1.Task{}}
		_, err := w.client.Bind(w.ctx, bind)
		if f := fault.Of(err); refused && (f == nil || len(f.Fields) != 1 || f.Fields[0].Name != "task.command") {
			t.Errorf("a bind without a command on an agent: %v", err)
		} else if !refused && err != nil {
			t.Errorf("a bind without a command on a simulated executor: %v", err)
		}
		if refused {
			w.await(r, berthv1.Reservation_HELD)
			bind.Task, bind.RequestId = &berthv1.Task{Command: "sleep", Args: []string{"1000"}}, ""
			if _, err := w.client.Bind(w.ctx, bind); err != nil {
				t.Fatal(err)
			}
		}
		w.awaitRunning(r, count)
	}
}
