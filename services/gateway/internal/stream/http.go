package stream

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/services/gateway/internal/rest"
)

// ServeHTTP serves GET /v1/jobs/{job}/events as lines of JSON, or as server-sent events if
// the caller accepts these. It flushes each event.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	since, err := sinceOf(r)
	if err != nil {
		rest.WriteError(w, err)
		return
	}
	f, err := s.open(r.Context(), r.PathValue("job"), since)
	if err != nil {
		rest.WriteError(w, err)
		return
	}
	out := &writer{
		ResponseWriter: w, control: http.NewResponseController(w), patience: s.options.Patience,
		serverSent: strings.Contains(r.Header.Get("Accept"), "text/event-stream"),
	}
	// The connection may carry another answer, which sets its own deadline.
	defer out.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // it fails only on a closed connection
	// If a write fails, the reader has disconnected or does not read, so it cannot get an
	// error.
	f.end(f.cause(s.serve(f, out)))
}

// sinceOf returns the cursor from which the stream resumes. A browser that reconnects
// repeats its first URL and adds Last-Event-ID, so the header takes precedence.
func sinceOf(r *http.Request) (string, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "since" {
			return "", fault.BadField(fault.ReasonInvalid, name, "there is no such query parameter")
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		return last, nil
	}
	return query.Get("since"), nil
}

// serve writes events until the stream ends. It returns the error of a failed write.
func (s *Server) serve(f *follower, out *writer) error {
	if err := out.begin(); err != nil {
		return err
	}
	alive := time.NewTicker(s.options.Heartbeat)
	defer alive.Stop()
	for {
		select {
		case event, more := <-f.events:
			if !more {
				return out.fail(f.reason())
			}
			if err := out.event(event); err != nil {
				return err
			}
			s.metrics.sentEvent(f, event)
		case <-alive.C:
			if !out.serverSent {
				continue
			}
			if err := out.printf(": alive\n\n"); err != nil {
				return err
			}
		}
	}
}

// writer writes a stream as NDJSON or as server-sent events. In NDJSON each line has one
// event, and an error is the last line: {"error":…}. Server-sent events are for EventSource
// in browsers: the id is the cursor, and the name of the event is the kind.
//
// A write that blocks for longer than twice the patience fails. The stream ends after the
// patience, so a reader that starts to read again before twice the patience gets the reason.
type writer struct {
	http.ResponseWriter
	control    *http.ResponseController
	patience   time.Duration
	serverSent bool
}

func (w *writer) begin() error {
	contentType := "application/x-ndjson"
	if w.serverSent {
		contentType = "text/event-stream"
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return w.control.Flush()
}

func (w *writer) event(e *berthv1.Event) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(e)
	if err != nil {
		return err // invalid UTF-8, which protobuf does not decode
	}
	text = rest.Compact(text)
	if w.serverSent {
		return w.printf("id: %s\nevent: %s\ndata: %s\n\n", e.GetCursor(), e.GetKind(), text)
	}
	return w.printf("%s\n", text)
}

// fail writes the reason why no more events follow.
func (w *writer) fail(reason error) error {
	text := rest.ErrorJSON(reason)
	if w.serverSent {
		return w.printf("event: error\ndata: %s\n\n", text)
	}
	return w.printf("{\"error\":%s}\n", text)
}

func (w *writer) printf(format string, args ...any) error {
	if err := w.control.SetWriteDeadline(time.Now().Add(2 * w.patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w.ResponseWriter, format, args...); err != nil { //nolint:gosec // JSON is not a page
		return err
	}
	return w.control.Flush()
}
