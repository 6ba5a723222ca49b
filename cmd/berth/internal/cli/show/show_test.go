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
		Pools: []string{"p", "q"}, Role: "batch", SameShape: true, Spread: &berthv1.Spread{By: "rack", Max: 2}, Pack: true, Avoid: []string{"ex-1"},
	})
	const want = "cpu 1.5, memory 1Gi, sku big, zone=a, pools p,q, role batch, same shape, at most 2 for each rack, packed, avoid ex-1"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Text that others choose, such as an error, never breaks a row.
func TestTableKeepsRowsWhole(t *testing.T) {
	text := Assignments([]*berthv1.Assignment{{Job: "a", Stage: "b", Executor: "é", LastError: proto.String("one\ntwo\x1b[2J")}}, noon, false).text("")
	if lines := strings.Count(text, "\n"); lines != 2 || strings.ContainsRune(text, '\x1b') {
		t.Errorf("%d lines:\n%s", lines, text)
	}
}

// Names of the usual length fit the columns of a terminal.
func TestTablesFit80Columns(t *testing.T) {
	at := timestamppb.New(noon.Add(-26 * time.Hour))
	tables := map[string]*Table{
		"reservations": Reservations([]*berthv1.Reservation{{
			Job: "train-resnet", Stage: "gpu", Name: "main", State: berthv1.Reservation_CANCELLING, Count: 128,
			WorkerCounts: map[string]int32{"RUNNING": 100}, Position: 12, CreatedAt: at, Reason: proto.String("INSUFFICIENT_CAPACITY"),
		}}, noon, false),
		"pending": Pending([]*berthv1.PendingGroup{{
			Id: "a1b2c3d4", Reservations: 12, Workers: 480, Head: &berthv1.ReservationKey{Job: "train-resnet", Stage: "gpu"},
			HeadAge: durationpb.New(26 * time.Hour), Reason: "INSUFFICIENT_CAPACITY",
		}}, false),
		"executors": Executors([]*berthv1.Executor{{
			Id: "gpu-host-0123", Sku: "gpu-8", State: berthv1.Executor_UNREACHABLE, Workers: 1, Since: at,
			Resources: map[string]int64{"slots": 1, "cpu": 64000, "memory": 512 << 30}, Used: map[string]int64{"cpu": 1500, "memory": 96 << 30},
		}}, noon, false),
		"leaders": Leaders([]*berthv1.ServiceLeadership{{
			Service: "executor-state", Leader: "executor-state-0", Address: "10.10.10.10:7102", Term: 123456, Since: at,
		}}, noon, false),
	}
	for name, table := range tables {
		for line := range strings.Lines(table.text("")) {
			if len(line) > 81 {
				t.Errorf("%s has %d columns:\n%s", name, len(line)-1, line)
			}
		}
	}
}

func TestEvent(t *testing.T) {
	e := &berthv1.Event{
		Kind: berthv1.Event_WORKER_FAILED, Time: timestamppb.New(noon), Job: "a", Stage: "b", Reservation: "main", Reason: proto.String("EXITED"),
		Workers: []*berthv1.EventWorker{{Index: 2, Number: 1, Executor: proto.String("ex-1"), Reason: proto.String("EXITED"), ExitCode: proto.Int32(3)}},
	}
	const want = "12:00:00  WORKER_FAILED          b/main               2.1 on ex-1 exit 3  EXITED"
	if got := Event(e, noon); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	e.Count = 300
	if got := Event(e, noon); !strings.Contains(got, "300 workers") || strings.Contains(got, "ex-1") {
		t.Errorf("a large batch is told of by its count: %q", got)
	}
	elsewhere := noon.In(time.FixedZone("", 3600))
	if got := Event(e, elsewhere); !strings.HasPrefix(got, "13:00:00") {
		t.Errorf("not in the location of now: %q", got)
	}
}

func TestSeats(t *testing.T) {
	list := []*berthv1.Seat{{Index: 0, Number: 1}, {Index: 1, Number: 1}, {Index: 2, Number: 3}, {Index: 7, Number: 3}}
	const want = "0-1 number 1, 2 number 3, 7 number 3"
	if got := seats(list); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLasting(t *testing.T) {
	group := func(age time.Duration, workers int32, revision int64) *berthv1.ListPendingAnswer {
		return &berthv1.ListPendingAnswer{Ready: true, Revision: revision, Groups: []*berthv1.PendingGroup{{Id: "g", Workers: workers, HeadAge: durationpb.New(age)}}}
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
