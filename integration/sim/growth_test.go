package sim

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/model"
	"berth.dev/services/assigner/dispatch"
	"berth.dev/services/executor-state/inventory"
	"berth.dev/services/registry/queue"
)

// After their history of ten minutes, short workers leave no state in any replica: twice as many
// workers need no more memory. An agent remembers for 24 hours which workers must not start again.
// `make growth` measures real processes.
func TestShortWorkersLeaveNoState(t *testing.T) {
	s := NewStage(Config{Replicas: 2, Queue: queue.Config{}, Inventory: inventory.DefaultConfig()}, io.Discard)
	for i := range 4 {
		s.StartHost(hostWithSlots(fmt.Sprintf("host-%d", i), 10))
	}
	const (
		batch = 100
		// remembered is the most that an agent needs for a worker that must not start again, in bytes.
		remembered = 300
	)
	number := 0
	run := func(times int) map[string]int64 {
		for range times {
			for range batch {
				worker := model.Worker{Job: fmt.Sprintf("job-%d", number/10), Stage: fmt.Sprintf("stage-%d", number),
					ID: model.WorkerID{Number: 1}}
				number++
				s.reserve(t, worker)
				if err := s.Until(func() bool { return s.Exit(worker, 0) }); err != nil {
					t.Fatal(err)
				}
			}
			for range int(model.KeepTerminal/time.Minute) + 2 {
				if err := s.Wait(time.Minute); err != nil {
					t.Fatal(err)
				}
			}
		}
		return s.sizes()
	}
	once, twice := run(1), run(2)
	if len(once) != 10 {
		t.Fatalf("only %v were measured", once)
	}
	for name, before := range once {
		limit := before + 10*batch
		if s.agent(name) != nil {
			limit = before + 2*batch*remembered
		}
		if after := twice[name]; before < 100 || after > limit {
			t.Errorf("%s had %d bytes after %d workers, and %d after twice as many more", name, before, batch, after)
		}
	}
}

// reserve requests a worker that uses one slot.
func (s *Stage) reserve(t *testing.T, w model.Worker) {
	t.Helper()
	r := &berthv1.Reservation{Job: w.Job, Stage: w.Stage, Count: 1, Task: &berthv1.Task{Command: "sh"},
		Constraints: &berthv1.Constraints{Resources: map[string]int64{"slots": 1}}}
	if _, err := berthv1.NewReservationsClient(s).UpsertReservation(context.Background(),
		&berthv1.UpsertReservationRequest{Reservation: r}); err != nil {
		t.Fatal(err)
	}
}

// sizes returns the size of the core of each replica, and of the decisions of each agent.
func (s *Stage) sizes() map[string]int64 {
	sizes := map[string]int64{}
	for service, replicas := range s.w.replicas {
		for i, r := range replicas {
			name := fmt.Sprintf("%s-%d", service, i)
			switch n := r.(type) {
			case *node[*queue.Core]:
				sizes[name] = sizeOf(n.driver.Core)
			case *node[*inventory.Core]:
				sizes[name] = sizeOf(n.driver.Core)
			case *node[*dispatch.Core]:
				sizes[name] = sizeOf(n.driver.Core)
			}
		}
	}
	for _, a := range s.w.agents {
		sizes[a.id] = sizeOf(a.decisions)
	}
	return sizes
}

// sizeOf returns the bytes of everything that a value points to, without functions and channels. The
// logs of the newest changes in executor-state do not count, because the number of entries is limited.
func sizeOf(of any) int64 {
	seen := map[uintptr]bool{}
	var walk func(v reflect.Value) int64
	parts := func(n int, part func(i int) reflect.Value) (size int64) {
		for i := range n {
			size += walk(part(i))
		}
		return size
	}
	walk = func(v reflect.Value) int64 {
		switch v.Kind() {
		case reflect.Pointer:
			if v.IsNil() || seen[v.Pointer()] {
				return 0
			}
			seen[v.Pointer()] = true
			return int64(v.Elem().Type().Size()) + walk(v.Elem())
		case reflect.Interface:
			if v.IsNil() {
				return 0
			}
			return int64(v.Elem().Type().Size()) + walk(v.Elem())
		case reflect.String:
			return int64(v.Len())
		case reflect.Struct:
			if strings.HasPrefix(v.Type().Name(), "changeLog[") {
				return 0
			}
			return parts(v.NumField(), v.Field)
		case reflect.Array:
			return parts(v.Len(), v.Index)
		case reflect.Slice:
			if v.IsNil() || seen[v.Pointer()] && v.Len() > 0 {
				return 0
			}
			seen[v.Pointer()] = true
			return int64(v.Cap())*int64(v.Type().Elem().Size()) + parts(v.Len(), v.Index)
		case reflect.Map:
			size := int64(v.Len()) * int64(v.Type().Key().Size()+v.Type().Elem().Size())
			for it := v.MapRange(); it.Next(); {
				size += walk(it.Key()) + walk(it.Value())
			}
			return size
		default:
			return 0
		}
	}
	return walk(reflect.ValueOf(of))
}
