package stream_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/stream"
)

// serveHTTP serves the streams of a source over HTTP.
func serveHTTP(t *testing.T, source stream.Source, patience, heartbeat time.Duration) (url string,
	stop context.CancelFunc) {
	t.Helper()
	life, stop := context.WithCancel(t.Context())
	mux := http.NewServeMux()
	mux.Handle("GET /v1/jobs/{job}/events", stream.NewServer(life, source,
		stream.Options{Patience: patience, Heartbeat: heartbeat, MaxStreams: 100}))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		stop()
		server.Close()
	})
	return server.URL, stop
}

// get starts to read a stream.
func get(t *testing.T, url string, header ...string) (*http.Response, *bufio.Reader) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultTransport.(*http.Transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		res.Body.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return res, bufio.NewReader(res.Body)
}

func line(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	text, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("after %q: %v", text, err)
	}
	return strings.TrimSuffix(text, "\n")
}

func event(t *testing.T, text string) *berthv1.Event {
	t.Helper()
	var e berthv1.Event
	if err := protojson.Unmarshal([]byte(text), &e); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return &e
}

func TestLinesOfJSON(t *testing.T) {
	source := newMemory(2)
	url, _ := serveHTTP(t, source, time.Minute, time.Minute)
	res, body := get(t, url+"/v1/jobs/a/events")
	if got := res.Header.Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("content type %s", got)
	}
	var last string
	for i := range 4 {
		if i >= 2 {
			source.write() // an event that is written during the stream
		}
		e := event(t, line(t, body))
		if e.GetRevision() != int64(i+1) || e.GetKind() != berthv1.Event_WORKER_RUNNING {
			t.Fatalf("event %d is %v", i, e)
		}
		last = e.GetCursor()
	}
	source.write()
	_, body = get(t, url+"/v1/jobs/a/events?since="+last)
	if e := event(t, line(t, body)); e.GetRevision() != 5 {
		t.Errorf("event after %s: %v", last, e)
	}
}

func TestServerSentEventsResumeAtTheLastEventID(t *testing.T) {
	source := newMemory(3)
	url, _ := serveHTTP(t, source, time.Minute, time.Minute)
	// A browser that reconnects repeats its first URL and adds Last-Event-ID.
	res, body := get(t, url+"/v1/jobs/a/events?since=1-0", "Accept", "text/event-stream", "Last-Event-ID", "2-0")
	if got := res.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("content type %s", got)
	}
	for _, want := range []string{"id: 3-0", "event: WORKER_RUNNING"} {
		if got := line(t, body); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	data, found := strings.CutPrefix(line(t, body), "data: ")
	if e := event(t, data); !found || e.GetUid() != "u3" {
		t.Errorf("data is %s", data)
	}
	if got := line(t, body); got != "" {
		t.Errorf("the event ends with %q", got)
	}
}

func TestAQuietStreamHasHeartbeats(t *testing.T) {
	url, _ := serveHTTP(t, newMemory(0), time.Minute, time.Millisecond)
	_, body := get(t, url+"/v1/jobs/a/events", "Accept", "text/event-stream")
	if got := line(t, body); got != ": alive" {
		t.Errorf("got %q", got)
	}
}

func TestBadRequestsGetAStatus(t *testing.T) {
	compacted := newMemory(0)
	compacted.open = fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "too old").With("cursor", "0-0")
	for _, c := range []struct {
		name, path string
		source     *memory
		status     int
		want       string
	}{
		{"bad cursor", "/v1/jobs/a/events?since=x", newMemory(0), 400, "since"},
		{"bad job", "/v1/jobs/-a/events", newMemory(0), 400, "BAD_NAME"},
		{"misspelt parameter", "/v1/jobs/a/events?sinze=1-0", newMemory(0), 400, "sinze"},
		{"bad flag", "/v1/jobs/a/events?stored=perhaps", newMemory(0), 400, "stored: must be true or false"},
		{"compacted", "/v1/jobs/a/events?since=1-0", compacted, 410, "EVENTS_COMPACTED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			url, _ := serveHTTP(t, c.source, time.Minute, time.Minute)
			res, body := get(t, url+c.path)
			text, err := io.ReadAll(body)
			if err != nil || res.StatusCode != c.status || !strings.Contains(string(text), c.want) || !json.Valid(text) {
				t.Errorf("%d %s %v", res.StatusCode, text, err)
			}
		})
	}
}

// Once a stream has started, its status has been sent. An error is therefore the last line
// of the stream.
func TestTheLastLineIsTheError(t *testing.T) {
	for _, c := range []struct{ name, accept, want string }{
		{"lines", "*/*", `{"error":{`},
		{"server-sent", "text/event-stream", "event: error"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := newMemory(0)
			url, _ := serveHTTP(t, source, time.Minute, time.Minute)
			_, body := get(t, url+"/v1/jobs/a/events", "Accept", c.accept)
			source.fail(fault.New(fault.OutOfRange, fault.ReasonEventsCompacted, "too old"))
			text, err := io.ReadAll(body)
			if err != nil || !strings.HasPrefix(string(text), c.want) || !strings.Contains(string(text), "EVENTS_COMPACTED") {
				t.Errorf("got %s, %v", text, err)
			}
		})
	}
}

func TestStreamsEndWithTheGateway(t *testing.T) {
	url, stop := serveHTTP(t, newMemory(0), time.Minute, time.Minute)
	_, body := get(t, url+"/v1/jobs/a/events")
	stop()
	text, err := io.ReadAll(body)
	if err != nil || !strings.Contains(string(text), "this gateway is stopping") {
		t.Errorf("got %s, %v", text, err)
	}
}

// If a reader does not read, the server closes its connection.
func TestTheConnectionOfASlowReaderIsClosed(t *testing.T) {
	source := flood()
	url, _ := serveHTTP(t, source, 20*time.Millisecond, time.Minute)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/jobs/a/events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	// The server ends the stream while the client does not read. Then the client reads the
	// buffered events and the end of the stream. The end may have no error, because the
	// connection may have been blocked for too long. All events together would be tens of
	// megabytes.
	<-source.closed
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	n, err := io.Copy(io.Discard, conn)
	if err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if n > 30<<20 {
		t.Errorf("%d bytes were kept for a reader that did not read", n)
	}
}

// If a reader continues to read soon after the server has ended its stream, the reader
// receives the error.
func TestASlowReaderGetsAnError(t *testing.T) {
	// The client must read within the given patience after the server has ended the stream.
	// The machine may be busy for that long, so the test retries with more patience.
	for patience := 500 * time.Millisecond; ; patience *= 4 {
		all, err := readLate(t, patience)
		if err == nil && strings.Contains(string(all), string(fault.ReasonSlowReader)) {
			return
		}
		if patience > 5*time.Second {
			t.Fatalf("%d bytes without the reason, %v", len(all), err)
		}
	}
}

// readLate reads a stream after the server has ended it.
func readLate(t *testing.T, patience time.Duration) ([]byte, error) {
	t.Helper()
	source := flood()
	url, _ := serveHTTP(t, source, patience, time.Minute)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /v1/jobs/a/events HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-source.closed
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	all, err := io.ReadAll(conn)
	if source.paused.Load() == 0 {
		t.Error("the source was not paused")
	}
	return all, err
}
