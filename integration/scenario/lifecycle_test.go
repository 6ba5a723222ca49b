package scenario

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
)

// The test makes the calls that a job service makes in a day, over REST.
func TestJobLifecycleOverREST(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	w.startSim("sim", 16, 1)
	web := newWeb(t, w.fleet.Gateway())
	until(t, func() string {
		list := &berthv1.ListExecutorsAnswer{}
		web.ok("GET", "/v1/executors?state=READY&sku=sim", "", list)
		if n := len(list.GetExecutors()); n != 16 {
			return fmt.Sprintf("%d of 16 executors are ready", n)
		}
		return ""
	})

	// Eight workers are requested and run.
	const first, second = "/v1/jobs/day/stages/map/reservation", "/v1/jobs/day/stages/reduce/reservation"
	asked := web.reservation("PUT", first, `{"count": 8, "labels": {"team": "blue"}}`)
	if asked.GetUid() == "" || asked.GetEpoch() == 0 || asked.GetChange() != berthv1.UpsertReservationRequest_CREATED ||
		asked.GetName() != "main" {
		t.Errorf("answer to PUT: %v", asked)
	}
	running := map[string]int32{}
	seen := web.events("day", nil, func(e *berthv1.Event) bool {
		for _, worker := range e.GetWorkers() {
			if e.GetKind() == berthv1.Event_WORKER_RUNNING {
				running[worker.GetExecutor()]++
			}
		}
		return len(running) == 8
	})
	if seen[0].GetKind() != berthv1.Event_RESERVATION_QUEUED || seen[0].GetRevision() != asked.GetEpoch() {
		t.Errorf("first event %v, epoch %d", seen[0], asked.GetEpoch())
	}
	until(t, func() string {
		got := web.reservation("GET", first, "")
		if got.GetState() != berthv1.Reservation_ACTIVE || got.GetUid() != asked.GetUid() ||
			got.GetWorkerCounts()["RUNNING"] != 8 || len(got.GetWorkers()) != 8 {
			return fmt.Sprintf("reservation = %v", got)
		}
		return ""
	})
	workers := &berthv1.ListAssignmentsAnswer{}
	web.ok("GET", "/v1/assignments?job=day&state=RUNNING", "", workers)
	if n := len(workers.GetAssignments()); n != 8 {
		t.Errorf("%d assignments are running", n)
	}

	// A reader that was disconnected resumes after the last event that it received.
	for _, cut := range []int{0, len(seen) / 2, len(seen) - 2} {
		rest := seen[cut+1:]
		again := web.events("day", []string{"Accept", "text/event-stream", "Last-Event-ID", seen[cut].GetCursor()},
			func(e *berthv1.Event) bool { return e.GetCursor() == seen[len(seen)-1].GetCursor() })
		if len(again) != len(rest) {
			t.Errorf("%d events after event %d, want %d", len(again), cut, len(rest))
			continue
		}
		for i := range rest {
			if again[i].GetCursor() != rest[i].GetCursor() || again[i].GetKind() != rest[i].GetKind() {
				t.Errorf("event %d = %v, was %v", cut+1+i, again[i], rest[i])
			}
		}
	}

	// If the request is repeated, nothing changes.
	if same := web.reservation("PUT", first,
		`{"count": 8, "labels": {"team": "blue"}}`); same.GetChange() != berthv1.UpsertReservationRequest_UNCHANGED ||
		same.GetUid() != asked.GetUid() {
		t.Errorf("repeated PUT: %v", same)
	}

	// Twelve workers do not fit while eight run. All twelve are queued, with a reason.
	waiting := web.reservation("PUT", second, `{"count": 12}`)
	until(t, func() string {
		waiting = web.reservation("GET", second, "")
		// While the reservation is in a cycle, its state is LEASING.
		if waiting.GetState() != berthv1.Reservation_QUEUED || waiting.GetReason() != "INSUFFICIENT_CAPACITY" ||
			waiting.GetPosition() != 1 || !strings.Contains(waiting.GetMessage(), "8 fit") {
			return fmt.Sprintf("pending reservation: %v", waiting)
		}
		return ""
	})
	until(t, func() string {
		pending := &berthv1.ListPendingAnswer{}
		web.ok("GET", "/v1/reservations:pending", "", pending)
		if g := pending.GetGroups(); !pending.GetReady() || len(g) != 1 || g[0].GetReason() != "INSUFFICIENT_CAPACITY" ||
			g[0].GetWorkers() != 12 || g[0].GetHead().GetStage() != "reduce" {
			return fmt.Sprintf("pending: %v", pending)
		}
		return ""
	})

	// After the first reservation is cancelled, the second one is leased.
	var cancelled berthv1.CancelAnswer
	freed := time.Now()
	web.ok("DELETE", first, "", &cancelled)
	if cancelled.GetCancelled() != 1 {
		t.Errorf("DELETE cancelled %d", cancelled.GetCancelled())
	}
	web.events("day", nil, func(e *berthv1.Event) bool {
		return e.GetKind() == berthv1.Event_RESERVATION_LEASED && e.GetStage() == "reduce"
	})
	t.Logf("the second reservation was granted %v after the first was cancelled", time.Since(freed).Round(time.Millisecond))
	w.await(waiting, berthv1.Reservation_ACTIVE)
	w.await(asked, berthv1.Reservation_CANCELLED)
	web.ok("DELETE", first, "", &cancelled)
	if cancelled.GetCancelled() != 0 {
		t.Errorf("DELETE after the end cancelled %d", cancelled.GetCancelled())
	}
	web.ok("DELETE", "/v1/jobs/day", "", &cancelled)
	if w.await(waiting, berthv1.Reservation_CANCELLED); cancelled.GetCancelled() != 1 {
		t.Errorf("DELETE of the job cancelled %d", cancelled.GetCancelled())
	}

	checkLeaders(t, web)
	checkOps(t, w)
	w.quiesce()
}

// checkLeaders waits until the list of leaders matches the metrics of all replicas.
func checkLeaders(t *testing.T, web *web) {
	t.Helper()
	until(t, func() string {
		leaders := &berthv1.ListLeadersAnswer{}
		web.ok("GET", "/v1/leaders", "", leaders)
		if len(leaders.GetServices()) != len(fleet.Services) {
			return fmt.Sprintf("leaders: %v", leaders)
		}
		for _, s := range leaders.GetServices() {
			roles := map[berthv1.Replica_Role]int{}
			for _, r := range s.GetReplicas() {
				roles[r.GetRole()]++
				if r.GetId() == "" || r.GetAddress() == "" || r.GetRevision() == 0 || r.GetVersion() == "" {
					return fmt.Sprintf("%s: replica %v", s.GetService(), r)
				}
			}
			if s.GetLeader() == "" || s.GetAddress() == "" || s.GetTerm() == 0 || s.GetSince() == nil || s.GetRenewed() == nil ||
				roles[berthv1.Replica_LEADER] != 1 || roles[berthv1.Replica_STANDBY] != 1 {
				return fmt.Sprintf("leadership: %v", s)
			}
		}
		return ""
	})
}

// checkOps waits until the probes and metrics of every process are healthy.
func checkOps(t *testing.T, w *world) {
	t.Helper()
	says := func(web *web, who string, of map[string]string) {
		t.Helper()
		for path, want := range of {
			until(t, func() string {
				if status, body := web.call("GET", path, ""); status != http.StatusOK || !strings.Contains(body, want) {
					return fmt.Sprintf("%s %s: %d %.300s", who, path, status, body)
				}
				return ""
			})
		}
	}
	front := newWeb(t, w.fleet.Gateway())
	says(front, "gateway", map[string]string{
		"/openapi.json": `"/v1/reservations:pending"`, "/healthz": `"alive":true`, "/readyz": `"ready":true`,
		"/metrics": "go_goroutines",
	})
	if status, body := front.call("GET", "/openapi.json", ""); !json.Valid([]byte(body)) {
		t.Errorf("/openapi.json: %d, not JSON", status)
	}
	if status, _ := front.call("GET", "/leaderz", ""); status != http.StatusNotFound {
		t.Errorf("gateway /leaderz: %d", status)
	}
	for _, service := range fleet.Services {
		webs := map[string]*web{}
		for i := range 2 {
			p := w.fleet.Replica(service, i)
			webs[p.Name] = newWeb(t, p.Addresses().HTTP)
			says(webs[p.Name], p.Name, map[string]string{"/healthz": `"alive":true`, "/readyz": `"ready":true`,
				"/metrics": "go_goroutines"})
		}
		until(t, func() string {
			leading := 0
			for name, web := range webs {
				switch status, body := web.call("GET", "/leaderz", ""); {
				case status == http.StatusOK:
					leading++
				case status != http.StatusServiceUnavailable || !strings.Contains(body, `"reason"`):
					t.Errorf("%s /leaderz: %d %s", name, status, body)
				}
			}
			if leading != 1 {
				return fmt.Sprintf("%d replicas of %s report that they lead", leading, service)
			}
			return ""
		})
	}
}
