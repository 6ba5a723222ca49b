package internal

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// many returns enough workers to make a report larger than largeRequest.
func many() []*controlv1.WorkerReport {
	indexes := make([]int32, largeRequest/8)
	for i := range indexes {
		indexes[i] = int32(i)
	}
	return running(indexes...)
}

func TestLargeAndSmallRequestsAreHandledInOrder(t *testing.T) {
	h, agents := heartbeats(t)
	incarnation := register(t, agents, "a", "n").GetIncarnation()
	s, _ := openRelay(t, h)
	s.bring(1, &controlv1.HeartbeatRequest{Id: "a", Incarnation: incarnation, Nonce: "n",
		Report: &controlv1.ExecutorReport{Sequence: 1, Complete: true, Workers: many()}})
	s.in <- &controlv1.RelayRequest{Heartbeats: []uint32{1}}
	s.bring(1, &controlv1.HeartbeatRequest{Id: "a", Incarnation: incarnation,
		Report: &controlv1.ExecutorReport{Sequence: 2, Complete: true, Workers: running(1, 2)}})
	next := int64(1)
	s.until(1, func(a *controlv1.HeartbeatAnswer) bool {
		switch a.GetReport().GetSequence() {
		case 0: // answers a heartbeat
		case next:
			next++
		default:
			t.Fatalf("report %d was answered before %d", a.GetReport().GetSequence(), next)
		}
		return next == 3
	})
}

// A large report is decoded only for the agent that registered the executor. The test sends
// reports that cannot be decoded, and only the registered agent gets the decoding error.
func TestLargeRequestsOfOtherAgentsAreNotDecoded(t *testing.T) {
	play(t, func(t *testing.T, s *session, _ *renewals, agents *Agents) {
		registered := registerAgent(t, agents, "n1", "secret")
		for _, test := range []struct {
			id, nonce   string
			incarnation int64
			reason      fault.Reason
			after       time.Duration
		}{
			{"b", "guess", registered.GetIncarnation(), fault.ReasonOtherAgent, 0},
			{"b", "guess", registered.GetIncarnation() - 1, fault.ReasonOtherIncarnation, 0},
			{"nobody", "n1", 7, fault.ReasonNotFound, registrationWait},
			{"b", "n1", registered.GetIncarnation(), fault.ReasonInvalid, 0},
		} {
			request, err := proto.Marshal(&controlv1.HeartbeatRequest{Id: test.id, Incarnation: test.incarnation,
				Nonce: test.nonce})
			if err != nil {
				t.Fatal(err)
			}
			request = protowire.AppendTag(request, 3, protowire.BytesType)
			request = protowire.AppendBytes(request, bytes.Repeat([]byte{0xff}, largeRequest))
			hello, err := decodeHello(request)
			if err != nil {
				t.Fatal(err)
			}
			back := newBack()
			began := time.Now()
			s.h.begin(t.Context(), hello, back).receive(request)
			if err := <-back.ended; !fault.Is(err, test.reason) || time.Since(began) != test.after {
				t.Errorf("%+v: after %v: %v", test, time.Since(began), err)
			}
		}
	})
}

// Each agent may report freeItems workers. All agents together share a limit for the
// workers above that number. The share of an agent is free again once its stream has ended.
func TestReportedWorkersAreLimited(t *testing.T) {
	var all sharedItems
	report := func(l *reportedWorkers, from, to int32) bool {
		r := &controlv1.ExecutorReport{}
		for i := from; i < to; i++ {
			r.Workers = append(r.Workers, running(i)...)
		}
		return l.reported(r)
	}
	crowded := newReportedWorkers(&all)
	for from := int32(0); from < wire.MaxReportedWorkers; from += 20_000 {
		if !report(crowded, from, from+20_000) {
			t.Fatalf("refused above %d", from)
		}
	}
	if report(crowded, wire.MaxReportedWorkers, wire.MaxReportedWorkers+1) {
		t.Error("more workers of one executor than a report may have")
	}
	all.items.Store(maxSharedItems)
	others := newReportedWorkers(&all)
	if !report(others, 0, freeItems) {
		t.Error("an agent was refused because of the workers of another")
	}
	if report(others, freeItems, freeItems+1) {
		t.Error("more workers of all agents than the limit")
	}
	crowded.close()
	if !report(newReportedWorkers(&all), 0, freeItems+1) ||
		all.items.Load() != maxSharedItems-(wire.MaxReportedWorkers-freeItems)+1 {
		t.Errorf("%d workers of all agents after one stream has ended", all.items.Load())
	}
}
