package stream

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
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
	since, stored, err := parameters(r)
	if err != nil {
		rest.WriteError(w, err)
		return
	}
	f, err := s.open(r.Context(), r.PathValue("job"), since, stored)
	if err != nil {
		rest.WriteError(w, err)
		return
	}
	out := NewWriter(w, s.options.Patience, strings.Contains(r.Header.Get("Accept"), "text/event-stream"))
	defer out.End()
	// If a write fails, the reader has disconnected or does not read, so it cannot get an
	// error.
	f.end(f.cause(s.serve(f, out)))
}

// parameters returns the cursor from which the stream resumes, and whether it ends after the stored
// events. A browser that reconnects repeats its first URL and adds Last-Event-ID, so the header
// takes precedence.
func parameters(r *http.Request) (since string, stored bool, err error) {
	query := r.URL.Query()
	if err := rest.OnlyParameters(query, "since", "stored"); err != nil {
		return "", false, err
	}
	if text := query.Get("stored"); text != "" {
		if stored, err = strconv.ParseBool(text); err != nil {
			return "", false, fault.BadField(fault.ReasonInvalid, "stored", "must be true or false, got %q", text)
		}
	}
	return Since(r, query), stored, nil
}

// Since returns the cursor of a request with a query.
func Since(r *http.Request, query url.Values) string {
	return cmp.Or(r.Header.Get("Last-Event-ID"), query.Get("since"))
}

// serve writes events until the stream ends. It returns the error of a failed write.
func (s *Server) serve(f *follower, out *Writer) error {
	if err := out.Begin(); err != nil {
		return err
	}
	alive := time.NewTicker(s.options.Heartbeat)
	defer alive.Stop()
	for {
		select {
		case event, more := <-f.events:
			if !more {
				if reason := f.reason(); reason != nil {
					return out.Fail(reason)
				}
				return nil
			}
			if err := out.event(event); err != nil {
				return err
			}
			s.metrics.sentEvent(f, event)
		case <-alive.C:
			if !out.serverSent {
				continue
			}
			if err := out.Alive(); err != nil {
				return err
			}
		}
	}
}

// Writer writes a stream as NDJSON or as server-sent events. In NDJSON each line has one
// event, and an error is the last line: {"error":…}. Server-sent events are for EventSource
// in browsers: the id is the cursor, and the name of the event is the kind.
//
// A write that blocks for longer than twice the patience fails. The stream ends after the
// patience, so a reader that starts to read again before twice the patience gets the reason.
type Writer struct {
	http.ResponseWriter
	control    *http.ResponseController
	patience   time.Duration
	serverSent bool
}

// NewWriter returns a writer of a stream. The caller must call End when the stream has ended.
func NewWriter(w http.ResponseWriter, patience time.Duration, serverSent bool) *Writer {
	return &Writer{w, http.NewResponseController(w), patience, serverSent}
}

// End removes the deadline of the last write. The connection may carry another answer, which
// sets its own deadline.
func (w *Writer) End() {
	w.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // it fails only on a closed connection
}

// Begin writes the header.
func (w *Writer) Begin() error {
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

func (w *Writer) event(e *berthv1.Event) error {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(e)
	if err != nil {
		return err // invalid UTF-8, which protobuf does not decode
	}
	text = rest.Compact(text)
	if w.serverSent {
		return w.Event(e.GetCursor(), e.GetKind().String(), text)
	}
	return w.write(text, []byte("\n"))
}

// Event writes a server-sent event. Its data is one line.
func (w *Writer) Event(id, name string, data []byte) error {
	return w.write(fmt.Appendf(nil, "id: %s\nevent: %s\ndata: ", id, name), data, []byte("\n\n"))
}

// Alive writes a comment, which keeps proxies from closing a quiet stream of server-sent events.
func (w *Writer) Alive() error { return w.write([]byte(": alive\n\n")) }

// Fail writes the reason why no more events follow.
func (w *Writer) Fail(reason error) error {
	text := rest.ErrorJSON(reason)
	if w.serverSent {
		return w.write(fmt.Appendf(nil, "event: error\ndata: %s\n\n", text))
	}
	return w.write(fmt.Appendf(nil, "{\"error\":%s}\n", text))
}

func (w *Writer) write(parts ...[]byte) error {
	if err := w.control.SetWriteDeadline(time.Now().Add(2 * w.patience)); err != nil {
		return err
	}
	for _, part := range parts {
		if _, err := w.ResponseWriter.Write(part); err != nil { //nolint:gosec // JSON is not a page
			return err
		}
	}
	return w.control.Flush()
}
