package stream

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
)

// ErrorWriter renders an error: as a whole answer, and as JSON inside a stream
// that has begun.
type ErrorWriter interface {
	WriteError(w http.ResponseWriter, err error)
	ErrorJSON(err error) []byte
}

// Handler serves GET /v1/jobs/{job}/events: lines of JSON, or server-sent
// events where the caller accepts those. Every event is flushed at once.
func (s *Server) Handler(errs ErrorWriter) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		since, err := sinceOf(r)
		if err != nil {
			errs.WriteError(w, err)
			return
		}
		f, err := s.open(r.Context(), r.PathValue("job"), since)
		if err != nil {
			errs.WriteError(w, err)
			return
		}
		out := &writer{w: w, control: http.NewResponseController(w), patience: s.options.Patience}
		// The connection may carry another answer, which has its own time.
		defer out.control.SetWriteDeadline(time.Time{}) //nolint:errcheck // it has gone
		var form format = lines{out}
		if strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
			form = serverSent{out}
		}
		// A failed write means that the reader has gone or does not read: there
		// is no one to tell.
		f.end(f.why(s.serve(f, form, errs)))
	})
}

// sinceOf is the cursor to resume at. A browser that reconnects repeats its
// first URL and adds Last-Event-ID, so that wins.
func sinceOf(r *http.Request) (string, error) {
	query := r.URL.Query()
	for name := range query {
		if name != "since" {
			return "", fault.BadField(fault.ReasonInvalid, name, "unknown query parameter")
		}
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		return last, nil
	}
	return query.Get("since"), nil
}

func (s *Server) serve(f *follower, form format, errs ErrorWriter) error {
	if err := form.begin(); err != nil {
		return err
	}
	beat := time.NewTicker(s.options.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case event, more := <-f.events:
			if !more {
				return form.end(errs.ErrorJSON(f.reason()))
			}
			if err := form.event(event); err != nil {
				return err
			}
			s.counts.wrote(f, event)
		case <-beat.C:
			if err := form.heartbeat(); err != nil {
				return err
			}
		}
	}
}

// format is how a stream looks.
type format interface {
	begin() error
	event(*berthv1.Event) error
	heartbeat() error
	// end tells why no more events come.
	end(errorJSON []byte) error
}

// lines is NDJSON: one event a line; a last line {"error":…}.
type lines struct{ *writer }

func (l lines) begin() error                 { return l.start("application/x-ndjson") }
func (l lines) event(e *berthv1.Event) error { return l.printf("%s\n", eventJSON(e)) }
func (l lines) heartbeat() error             { return nil }
func (l lines) end(err []byte) error         { return l.printf("{\"error\":%s}\n", err) }

// serverSent is the format of EventSource in browsers: the cursor is the id,
// the kind the name of the event.
type serverSent struct{ *writer }

func (s serverSent) begin() error { return s.start("text/event-stream") }
func (s serverSent) event(e *berthv1.Event) error {
	return s.printf("id: %s\nevent: %s\ndata: %s\n\n", e.GetCursor(), e.GetKind(), eventJSON(e))
}
func (s serverSent) heartbeat() error     { return s.printf(": alive\n\n") }
func (s serverSent) end(err []byte) error { return s.printf("event: error\ndata: %s\n\n", err) }

// eventJSON is always one line.
func eventJSON(e *berthv1.Event) []byte {
	text, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(e)
	if err != nil {
		// Only text that is no valid UTF-8 fails, and protobuf does not decode it.
		return []byte("{}")
	}
	return text
}

// writer writes and flushes; a write that waits longer than twice the patience
// fails. The stream is ended after one, and who reads again by then is told why.
type writer struct {
	w        http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
}

func (w *writer) start(contentType string) error {
	w.w.Header().Set("Content-Type", contentType)
	w.w.Header().Set("Cache-Control", "no-store")
	w.w.Header().Set("X-Accel-Buffering", "no")
	w.w.WriteHeader(http.StatusOK)
	return w.control.Flush()
}

func (w *writer) printf(format string, args ...any) error {
	if err := w.control.SetWriteDeadline(time.Now().Add(2 * w.patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w.w, format, args...); err != nil {
		return err
	}
	return w.control.Flush()
}
