package scenario

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/identity"
)

// web makes HTTP calls as curl does.
type web struct {
	*testing.T
	base string
	http http.Client
	// header has the names and values of headers of all requests.
	header []string
}

func newWeb(t *testing.T, address string) *web { return newTLSWeb(t, address, nil) }

// newTLSWeb returns a web whose calls are encrypted if security is not nil.
func newTLSWeb(t *testing.T, address string, security *tls.Config) *web {
	w := &web{T: t, base: "http://" + address}
	if security != nil {
		w.base = "https://" + address
	}
	w.http.Timeout = patience
	w.http.Transport = &http.Transport{TLSClientConfig: security}
	// The client returns redirects and does not follow them.
	w.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(w.http.CloseIdleConnections)
	return w
}

// web returns a web for a process of the fleet. With TLS it is an operator.
func (w *world) web(address string) *web {
	return newTLSWeb(w.T, address, w.fleet.ClientTLS(identity.Gateway|identity.Service))
}

// open sends a request and returns the response before its body is read.
func (w *web) open(method, path, body string, header ...string) *http.Response {
	w.Helper()
	request, err := http.NewRequest(method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	header = append(slices.Clone(w.header), header...)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	answer, err := w.http.Do(request)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

// call makes a call and returns the status and the body.
func (w *web) call(method, path, body string) (int, string) {
	w.Helper()
	answer := w.open(method, path, body)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, string(text)
}

// ok makes a call that must succeed and decodes the answer. The answer must not have
// unknown fields.
func (w *web) ok(method, path, body string, into proto.Message) {
	w.Helper()
	status, text := w.call(method, path, body)
	if status != http.StatusOK {
		w.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	if err := protojson.Unmarshal([]byte(text), into); err != nil {
		w.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
}

func (w *web) reservation(method, path, body string) *berthv1.Reservation {
	w.Helper()
	r := &berthv1.Reservation{}
	w.ok(method, path, body, r)
	return r
}

// failure is a google.rpc.Status in JSON.
type failure struct {
	Code    int
	Message string
	Details []struct {
		Reason, Domain  string
		FieldViolations []struct{ Field, Description string }
	}
}

// refused makes a call that fails. It returns the status, the reason and the field that the
// error names.
func (w *web) refused(method, path, body string) (status int, reason, field string) {
	w.Helper()
	status, text := w.call(method, path, body)
	var f failure
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		w.Fatalf("%s %s: %d without a status body: %s", method, path, status, text)
	}
	for _, d := range f.Details {
		if d.Domain == "berth" {
			reason = d.Reason
		}
		for _, v := range d.FieldViolations {
			field += v.Field
		}
	}
	return status, reason, field
}

// events reads an event stream until enough returns true, and returns the events. With
// headers, the stream must be server-sent events, otherwise NDJSON.
func (w *web) events(job string, header []string, enough func(*berthv1.Event) bool) []*berthv1.Event {
	w.Helper()
	answer := w.open("GET", "/v1/jobs/"+job+"/events", "", header...)
	defer answer.Body.Close()
	sse := answer.Header.Get("Content-Type") == "text/event-stream"
	if answer.StatusCode != http.StatusOK || sse != (len(header) > 0) {
		w.Fatalf("events of %s: %s, %s", job, answer.Status, answer.Header.Get("Content-Type"))
	}
	var all []*berthv1.Event
	id := ""
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		if sse {
			if cursor, ok := strings.CutPrefix(line, "id: "); ok {
				id = cursor
			}
			var ok bool
			if line, ok = strings.CutPrefix(line, "data: "); !ok {
				continue
			}
		}
		event := &berthv1.Event{}
		if err := protojson.Unmarshal([]byte(line), event); err != nil {
			w.Fatalf("%v in %s", err, line)
		}
		if sse && id != event.GetCursor() {
			w.Errorf("id %s and cursor %s", id, event.GetCursor())
		}
		if all = append(all, event); enough(event) {
			return all
		}
	}
	w.Fatalf("the event stream of %s ended after %d events", job, len(all))
	return nil
}
