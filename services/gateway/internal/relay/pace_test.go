package relay

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// listing returns a request with two reports. Together they list the given number of
// workers, with two bytes each.
func listing(workers int) []byte {
	request, err := proto.Marshal(&controlv1.HeartbeatRequest{Id: "e", Incarnation: 5, Nonce: "n",
		Report: &controlv1.ExecutorReport{Sequence: 7}})
	if err != nil {
		panic(err)
	}
	for _, n := range []int{workers / 2, workers - workers/2} {
		var report []byte
		for range n {
			report = protowire.AppendBytes(protowire.AppendTag(report, workersField, protowire.BytesType), nil)
		}
		request = protowire.AppendBytes(protowire.AppendTag(request, reportField, protowire.BytesType), report)
	}
	return request
}

func TestListedCountsTheDecodedWorkers(t *testing.T) {
	for _, workers := range []int{0, 1, 2, 1001} {
		request, m := listing(workers), &controlv1.HeartbeatRequest{}
		if err := proto.Unmarshal(request, m); err != nil {
			t.Fatal(err)
		}
		if n := len(m.GetReport().GetWorkers()); n != workers || listed(request) != workers {
			t.Errorf("%d workers: %d are listed, %d decoded", workers, listed(request), n)
		}
	}
	for _, request := range [][]byte{{0xff}, {reportField<<3 | 2, 200}, nil} {
		if n := listed(request); n != 0 {
			t.Errorf("%x lists %d", request, n)
		}
	}
}

func TestAReportOfTooManyWorkersIsRejected(t *testing.T) {
	if err := newPacer().wait(t.Context(), listing(wire.MaxReportedWorkers)); err != nil {
		t.Error(err)
	}
	if err := newPacer().wait(t.Context(), listing(wire.MaxReportedWorkers+1)); !fault.Is(err, fault.ReasonTooLarge) {
		t.Errorf("got %v", err)
	}
}

// Large requests wait for a limited time. Small requests do not wait for large ones.
func TestRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, large := newPacer(), listing(wire.MaxReportedWorkers)
		var err error
		n := 0
		for began := time.Now(); err == nil && time.Since(began) < time.Minute; n++ {
			done := make(chan error, 1)
			go func() { done <- p.wait(t.Context(), large) }()
			synctest.Wait()
			select {
			case err = <-done:
			default: // still waits
			}
		}
		if !fault.Is(err, fault.ReasonOverloaded) {
			t.Errorf("%d concurrent large requests: %v", n, err)
		}
		began := time.Now()
		if err := p.wait(t.Context(), listing(1)); err != nil || time.Since(began) > 0 {
			t.Errorf("a small request waited %v for large ones: %v", time.Since(began), err)
		}
		time.Sleep(longestPause)
		if err := p.wait(t.Context(), large); err != nil {
			t.Errorf("later: %v", err)
		}
		for range costBurst / leastCost {
			if err := p.wait(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		began = time.Now()
		if err := p.wait(t.Context(), nil); err != nil || time.Since(began) == 0 {
			t.Errorf("a small request after the burst waits %v: %v", time.Since(began), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.wait(ctx, nil); err == nil {
			t.Error("a request of an ended stream is sent")
		}
	})
}

// A heartbeat does not wait for queued requests.
func TestHeartbeatsAreSentFirst(t *testing.T) {
	r := newRelay(nil)
	var agents []*agent
	for range 3 {
		a := &agent{relay: r, sent: make(chan struct{}, 1)}
		r.add(a)
		agents = append(agents, a)
	}
	r.request(agents[0], make([]byte, messageSize))
	r.request(agents[1], make([]byte, messageSize))
	r.heartbeat(agents[2])
	messages := r.messages()
	if len(messages) != 2 || len(messages[0].GetHeartbeats()) != 1 || len(messages[0].of) != 1 ||
		len(messages[1].of) != 1 {
		t.Errorf("%d messages: %v", len(messages), messages)
	}
}
