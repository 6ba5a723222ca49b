package gateway_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/model"
	"berth.dev/pkg/store"
	"berth.dev/services/gateway/internal/stream/streamtest"
	"berth.dev/testkit/etcdtest"
)

const (
	streams   = 1000
	jobs      = 100
	perJob    = 20
	connected = 10 // connections that all gRPC streams share
)

// A thousand streams of all kinds receive each event of their job once and in order. After
// the streams have ended, their memory is free.
func TestAThousandStreams(t *testing.T) {
	etcd := etcdtest.Start(t)
	s := dialStore(t, etcd)
	w := &streamtest.Writer{TB: t, Store: s, Keys: keyspace.New("default"), Service: model.ServiceRegistry}
	var told [jobs][]string
	write := func(job int) { told[job] = append(told[job], w.Write(fmt.Sprintf("job-%d", job), 1)...) }
	config := before(replica(t), etcd.Endpoints()...)
	config.MaxEventStreams = streams
	g := run(t, config)
	for job := range jobs {
		write(job)
	}
	resting := runtime.NumGoroutine()

	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	got := make([][]string, streams)
	var begun, ended sync.WaitGroup
	begun.Add(streams)
	web := &http.Client{Transport: &http.Transport{}}
	var conns []*grpc.ClientConn
	for range connected {
		conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for i := range streams {
		ended.Go(func() {
			var first sync.Once
			take := func(event string) bool {
				first.Do(begun.Done)
				got[i] = append(got[i], event)
				return len(got[i]) < perJob
			}
			defer first.Do(begun.Done)
			job := fmt.Sprintf("job-%d", i%jobs)
			var err error
			if i%10 < 8 {
				err = overGRPC(ctx, conns[i%connected], job, take)
			} else {
				err = overREST(ctx, web, "http://"+g.Listen+"/v1/jobs/"+job+"/events", i%10 == 8, take)
			}
			if err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	begun.Wait() // each stream has received an event, so all streams are open
	if got := body(t, "http://"+g.HTTP+"/metrics"); !strings.Contains(got,
		fmt.Sprintf("berth_gateway_event_streams{cluster=\"default\"} %d\n", streams)) {
		t.Fatalf("not all streams are open: %s", lineOf(got, "berth_gateway_event_streams"))
	}
	refused, err := berthv1.NewEventsClient(conns[0]).WatchEvents(ctx, &berthv1.WatchEventsRequest{Job: "j"})
	if err == nil {
		_, err = refused.Recv()
	}
	if f := rpc.FromStatus(err); f.Kind != fault.Unavailable || f.Reason != fault.ReasonOverloaded {
		t.Errorf("one stream more: %v", err)
	}

	from := time.Now()
	for range perJob - 1 {
		for job := range jobs {
			write(job)
		}
	}
	wrote := time.Since(from)
	ended.Wait()
	t.Logf("%d events written in %v, read by %d streams in %v", jobs*(perJob-1), wrote, streams, time.Since(from))
	for i, events := range got {
		if want := told[i%jobs]; fmt.Sprint(events) != fmt.Sprint(want) {
			t.Fatalf("stream %d saw %q, want %q", i, events, want)
		}
	}
	web.CloseIdleConnections()
	for _, conn := range conns {
		conn.Close()
	}
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	awaitRest(t, resting)
}

// awaitRest waits until the number of goroutines is about the same as before the streams.
// The connections to replicas still have goroutines, but the thousand streams have none.
func awaitRest(t *testing.T, resting int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); runtime.NumGoroutine() > resting+100; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want %d", runtime.NumGoroutine(), resting)
		}
	}
}

func dialStore(t *testing.T, etcd *etcdtest.Cluster) *store.Etcd {
	t.Helper()
	s, err := store.Dial(store.DialConfig{Endpoints: etcd.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func overGRPC(ctx context.Context, conn *grpc.ClientConn, job string, take func(string) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := berthv1.NewEventsClient(conn).WatchEvents(ctx, &berthv1.WatchEventsRequest{Job: job})
	for err == nil {
		var e *berthv1.Event
		if e, err = events.Recv(); err == nil && !take(e.GetCursor()+" "+e.GetUid()) {
			return nil
		}
	}
	return err
}

func overREST(ctx context.Context, web *http.Client, url string, sse bool, take func(string) bool) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if sse {
		req.Header.Set("Accept", "text/event-stream")
	}
	res, err := web.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		text, data := strings.CutPrefix(lines.Text(), "data: ")
		if sse != data {
			continue
		}
		e := &berthv1.Event{}
		if err := protojson.Unmarshal([]byte(text), e); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		if !take(e.GetCursor() + " " + e.GetUid()) {
			return nil
		}
	}
	return errors.Join(lines.Err(), io.ErrUnexpectedEOF)
}

// lineOf returns the first line of a text that has the given prefix.
func lineOf(text, begins string) string {
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, begins) {
			return line
		}
	}
	return ""
}

// If a reader does not read, its stream ends, and the metrics count it. The reader delays
// neither other readers of the job nor the writer.
func TestASlowReaderDoesNotDelayOthers(t *testing.T) {
	etcd := etcdtest.Start(t)
	s := dialStore(t, etcd)
	w := &streamtest.Writer{TB: t, Store: s, Keys: keyspace.New("default"), Service: model.ServiceRegistry}
	g := run(t, before(replica(t), etcd.Endpoints()...))
	conn, err := net.Dial("tcp", g.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/jobs/j/events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	reader, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	events, err := berthv1.NewEventsClient(reader).WatchEvents(ctx, &berthv1.WatchEventsRequest{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	cut := func() bool {
		return lineOf(body(t, "http://"+g.HTTP+"/metrics"),
			`berth_gateway_event_streams_ended_total{cluster="default",reason="SLOW_READER"}`) != ""
	}
	var slowest time.Duration
	for n := 0; !cut(); n++ {
		if ctx.Err() != nil {
			t.Fatalf("the stream has not ended after %d events", n*100)
		}
		for _, want := range w.Write("j", 100) {
			from := time.Now()
			e, err := events.Recv()
			if err != nil {
				t.Fatal(err)
			}
			slowest = max(slowest, time.Since(from))
			if got := e.GetCursor() + " " + e.GetUid(); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
	if slowest > 5*time.Second {
		t.Errorf("an event took %v while another reader did not read", slowest)
	}
}
