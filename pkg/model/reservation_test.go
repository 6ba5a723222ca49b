package model

import (
	"fmt"
	"testing"
	"time"
)

// If a name were missing from its list, the value would print as the next name, or printing
// would panic.
func TestEveryValueHasAName(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		name  string
	}{
		{StateUnset, ""}, {Queued, "QUEUED"}, {Leasing, "LEASING"}, {Assigning, "ASSIGNING"}, {Active, "ACTIVE"},
		{Cancelling, "CANCELLING"}, {Completed, "COMPLETED"}, {Cancelled, "CANCELLED"}, {Expired, "EXPIRED"},
		{Failed, "FAILED"}, {Replaced, "REPLACED"},
		{ChangeUnset, ""}, {Created, "CREATED"}, {Unchanged, "UNCHANGED"}, {Reordered, "REORDERED"},
		{ChangeReplaced, "REPLACED"},
		{ExecutorUnset, ""}, {ExecutorRegistered, "REGISTERED"}, {ExecutorReady, "READY"},
		{ExecutorUnreachable, "UNREACHABLE"}, {ExecutorLost, "LOST"},
		{WorkerUnset, ""}, {WorkerAssigned, "ASSIGNED"}, {WorkerStarting, "STARTING"}, {WorkerRunning, "RUNNING"},
		{WorkerEvict, "EVICT"}, {WorkerEvicting, "EVICTING"}, {WorkerCompleted, "COMPLETED"}, {WorkerFailed, "FAILED"},
		{WorkerLost, "LOST"}, {WorkerEvicted, "EVICTED"},
	} {
		if got := c.value.String(); got != c.name {
			t.Errorf("%T %d is %q, want %q", c.value, c.value, got, c.name)
		}
	}
}

func TestReservationEnds(t *testing.T) {
	for s := StateUnset; s <= Replaced; s++ {
		want := false
		switch s {
		case Completed, Cancelled, Expired, Failed, Replaced:
			want = true
		}
		if s.Terminal() != want {
			t.Errorf("%s terminal: %v", s, s.Terminal())
		}
	}
}

func TestPrioritiesCompareByValue(t *testing.T) {
	one, same, two := int64(1), int64(1), int64(2)
	for _, c := range []struct {
		a, b  Priority
		equal bool
	}{
		{Priority{}, Priority{}, true},
		{Priority{Order: &one}, Priority{Order: &same}, true},
		{Priority{Order: &one}, Priority{Order: &two}, false},
		{Priority{Order: &one}, Priority{}, false},
		{Priority{Class: ClassScale}, Priority{Class: ClassReplace}, false},
		{Priority{Tier: 1}, Priority{Tier: 2}, false},
	} {
		if c.a.Equal(c.b) != c.equal || c.b.Equal(c.a) != c.equal {
			t.Errorf("%+v and %+v: want equal %v", c.a, c.b, c.equal)
		}
	}
}

// Only a request waits for its first grant. An older Berth version queues requeues and rounds without
// Granted.
func TestAwaitsFirstGrant(t *testing.T) {
	for _, tt := range []struct {
		r    Reservation
		want bool
	}{
		{Reservation{}, true},
		{Reservation{Origin: OriginPart}, true},
		{Reservation{Granted: true}, false},
		{Reservation{Origin: OriginRequeue}, false},
		{Reservation{Round: 1}, false},
	} {
		if got := tt.r.AwaitsFirstGrant(); got != tt.want {
			t.Errorf("%+v: %v", tt.r, got)
		}
	}
}

// The failures of a gang to start together are no failures of its workers.
func TestFailuresBefore(t *testing.T) {
	end := TaskWorker{RunningSince: InstantOf(time.Unix(1, 0)), Since: InstantOf(time.Unix(2, 0))}
	stable := TaskWorker{RunningSince: InstantOf(time.Unix(1, 0)), Since: InstantOf(time.Unix(1, 0).Add(StableAfter))}
	gang, requeue := &Reservation{Failures: 2}, &Reservation{Failures: 2, Origin: OriginRequeue}
	a, b, c := gang.FailuresBefore(&end), requeue.FailuresBefore(&end), requeue.FailuresBefore(&stable)
	if a != 0 || b != 2 ||
		c != 0 {
		t.Errorf("%d, %d and %d", a, b, c)
	}
}
