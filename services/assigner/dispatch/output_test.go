package dispatch

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// The request for the output of a worker goes to the executor of the newest worker that
// matches, with the current incarnation and nonce of the executor.
func TestOutputRequest(t *testing.T) {
	w := prepare(t, 3)
	w.dispatched(t, "u1", 0, 1)
	w.dispatched(t, "u2", 2, 2)
	// A later reservation of the same stage has the next number of worker 1.
	later := w.core.tasks["u2"]
	header := *later.header
	header.Key, header.Epoch = key("u1"), 8
	later.header = &header
	chunk := *later.chunks[0]
	chunk.Workers = []model.TaskWorker{chunk.Workers[1]}
	chunk.Workers[0].ID.Number = 2
	later.chunks[0] = &chunk
	e := *w.records[executorRef("e1")].record.(*model.Executor)
	e.Nonce, e.Incarnation = "n", 4
	w.write(e.Ref(), &e)
	w.executor(9, 1, false)

	at := func(index, number int32) model.Worker {
		return workerOf("u1", model.WorkerID{Index: index, Number: number})
	}
	other := at(0, 0)
	other.Stage = "reduce"
	for _, c := range []struct {
		name     string
		worker   model.Worker
		epoch    int64
		executor string
		want     Request
		reason   fault.Reason
	}{
		{"the newest", at(1, 0), 0, "", Request{Executor: "e2", Worker: at(1, 2), Epoch: 8, Incarnation: 1}, ""},
		{"by number", at(1, 1), 0, "", Request{Executor: "e1", Worker: at(1, 1), Epoch: 7, Incarnation: 4, Nonce: "n"}, ""},
		{"by epoch", at(1, 0), 7, "", Request{Executor: "e1", Worker: at(1, 1), Epoch: 7, Incarnation: 4, Nonce: "n"}, ""},
		{"without a record", other, 0, "e0", Request{Executor: "e0", Worker: other, Incarnation: 1}, ""},
		{"another number", at(0, 2), 0, "", Request{}, fault.ReasonNotFound},
		{"another index", at(2, 0), 0, "", Request{}, fault.ReasonNotFound},
		{"another stage", other, 0, "", Request{}, fault.ReasonNotFound},
		{"another epoch", at(0, 0), 9, "", Request{}, fault.ReasonNotFound},
		{"an unknown executor", at(0, 0), 0, "e7", Request{}, fault.ReasonNotFound},
		{"an executor that is not connected", at(0, 0), 0, "e9", Request{}, fault.ReasonExecutorUnreachable},
	} {
		got, err := w.core.Output(c.worker, c.epoch, c.executor)
		if c.reason != "" {
			if !fault.Is(err, c.reason) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		c.want.Address = c.want.Executor + ":7200"
		if err != nil || got != c.want {
			t.Errorf("%s: got %+v, %v", c.name, got, err)
		}
	}
	w.executor(0, 1, true)
	if _, err := w.core.Output(at(0, 0), 0, ""); !fault.Is(err, fault.ReasonExecutorUnreachable) {
		t.Errorf("a lost executor: %v", err)
	}
	w.write(executorRef("e0"), nil)
	if _, err := w.core.Output(at(0, 0), 0, ""); !fault.Is(err, fault.ReasonNotFound) {
		t.Errorf("a deleted executor: %v", err)
	}
}
