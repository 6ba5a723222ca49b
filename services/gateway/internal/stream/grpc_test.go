package stream_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/services/gateway/internal/stream"
)

// watch starts an event stream over gRPC.
func watch(t *testing.T, source stream.Source, patience time.Duration,
	req *berthv1.WatchEventsRequest) (grpc.ServerStreamingClient[berthv1.Event], context.CancelFunc) {
	t.Helper()
	life, stop := context.WithCancel(t.Context())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(rpc.ServerOptions{})
	berthv1.RegisterEventsServer(server, stream.NewServer(life, source,
		stream.Options{Patience: patience, Heartbeat: time.Minute, MaxStreams: 100}))
	var served sync.WaitGroup
	served.Go(func() { server.Serve(l) })
	conn, err := rpc.Dial([]string{l.Addr().String()}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(func() {
		cancel()
		stop()
		conn.Close()
		server.Stop()
		served.Wait()
	})
	s, err := berthv1.NewEventsClient(conn).WatchEvents(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return s, stop
}

func TestEventsAreWatchedOverGRPC(t *testing.T) {
	source := newMemory(3)
	s, stop := watch(t, source, time.Minute, &berthv1.WatchEventsRequest{Job: "a", Since: "1-0"})
	for want := int64(2); want < 6; want++ {
		if want > 3 {
			source.write()
		}
		if e, err := s.Recv(); err != nil || e.GetRevision() != want {
			t.Fatalf("event %d: %v, %v", want, e, err)
		}
	}
	stop()
	if _, err := s.Recv(); rpc.FromStatus(err).Kind != fault.Unavailable {
		t.Errorf("as the gateway stopped: %v", err)
	}
}

func TestTheErrorOfAStreamThatCannotStart(t *testing.T) {
	for _, req := range []*berthv1.WatchEventsRequest{{Job: ""}, {Job: "a/b"}, {Job: "a", Since: "x"}} {
		s, _ := watch(t, newMemory(0), time.Minute, req)
		if _, err := s.Recv(); rpc.FromStatus(err).Kind != fault.Invalid || len(rpc.FromStatus(err).Fields) != 1 {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// If the source fails, the events that were read before still arrive. The error follows
// them.
func TestTheReasonComesAfterTheEvents(t *testing.T) {
	source := newMemory(500)
	source.fail(fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "too old"))
	s, _ := watch(t, source, time.Minute, &berthv1.WatchEventsRequest{Job: "a"})
	for i := range 500 {
		if _, err := s.Recv(); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if _, err := s.Recv(); rpc.FromStatus(err).Reason != fault.ReasonEventsCompacted {
		t.Errorf("got %v", err)
	}
}

// A stream of the stored events ends without an error, also over HTTP.
func TestAStreamOfStoredEventsEnds(t *testing.T) {
	source := newMemory(3)
	s, _ := watch(t, source, time.Minute, &berthv1.WatchEventsRequest{Job: "a", Since: "1-0", Stored: true})
	for range 2 {
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	if e, err := s.Recv(); err != io.EOF {
		t.Errorf("after the last event: %v, %v", e, err)
	}
	url, _ := serveHTTP(t, source, time.Minute, time.Minute)
	for _, accept := range []string{"application/json", "text/event-stream"} {
		_, body := get(t, url+"/v1/jobs/a/events?stored=true", "Accept", accept)
		text, err := io.ReadAll(body)
		if err != nil || strings.Count(string(text), `"cursor"`) != 3 || strings.Contains(string(text), "error") {
			t.Errorf("%s: %v\n%s", accept, err, text)
		}
	}
}

func TestASlowGRPCReaderGetsAnError(t *testing.T) {
	source := flood()
	s, _ := watch(t, source, 20*time.Millisecond, &berthv1.WatchEventsRequest{Job: "a"})
	<-source.closed // the server has ended the stream before the client reads anything
	for i := 0; ; i++ {
		if _, err := s.Recv(); err != nil {
			if rpc.FromStatus(err).Reason != fault.ReasonSlowReader {
				t.Errorf("after %d events: %v", i, err)
			}
			return
		}
	}
}
