package watch_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/access"
	"berth.dev/pkg/identity"
	"berth.dev/services/gateway/internal/rest"
	"berth.dev/services/gateway/internal/watch"
)

const (
	patience  = 10 * time.Second
	heartbeat = 15 * time.Second
)

// calls answers every path below /v1/ with its text. Paths without a text have the text {}.
type calls struct {
	mu    sync.Mutex
	texts map[string]string
	errs  map[string]error
	takes time.Duration
	made  map[string]int
}

func (c *calls) Pattern(at *url.URL) string { return at.Path }

func (c *calls) Get(ctx context.Context, at *url.URL, _ int) (int, []byte) {
	c.mu.Lock()
	c.made[at.Path]++
	takes := c.takes
	c.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		w := httptest.NewRecorder()
		rest.WriteError(w, ctx.Err())
		return w.Code, w.Body.Bytes()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.errs[at.Path]; err != nil {
		w := httptest.NewRecorder()
		rest.WriteError(w, err)
		return w.Code, []byte(strings.TrimSpace(w.Body.String()))
	}
	if text := c.texts[at.Path]; text != "" {
		return http.StatusOK, []byte(text)
	}
	return http.StatusOK, []byte("{}")
}

func (c *calls) set(path, text string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts[path], c.errs[path] = text, err
}

// take sets the time that a call takes.
func (c *calls) take(takes time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes = takes
}

// count returns the number of calls since the last count.
func (c *calls) count() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, made := range c.made {
		n += made
	}
	clear(c.made)
	return n
}

// world is a server in a bubble of synctest.
type world struct {
	*testing.T
	*calls
	server  *watch.Server
	handler http.Handler
	life    context.Context
	stop    func()
	// full is the error for new streams, and ended has the reasons of ended streams.
	full   error
	caller *access.Caller // of the next streams; nil for a trusted one

	mu    sync.Mutex
	ended []error
}

// bubble runs a test with a server.
func bubble(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancel(context.Background())
		w := &world{T: t, life: life, stop: stop,
			calls: &calls{texts: map[string]string{}, errs: map[string]error{}, made: map[string]int{}}}
		w.server = watch.NewServer(life, watch.Options{Patience: patience, Heartbeat: heartbeat,
			Guard: &access.Guard{Listener: access.Public},
			Admit: func(string) (func(error), error) { return w.end, w.full },
		})
		w.handler = w.server.Handler(w.calls)
		var run sync.WaitGroup
		run.Go(func() { w.server.Run(life) }) //nolint:errcheck // it returns nil
		defer run.Wait()
		defer stop()
		test(w)
	})
}

func (w *world) end(cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, cause)
}

// reader is the reader of a stream.
type reader struct {
	w      *world
	header http.Header
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	status   int
	text     string
	deadline time.Time
	blocked  chan struct{} // closed when the reader reads again; nil if it reads
	last     string        // the id of the last event
}

// open opens a stream of paths. The header has names and values.
func (w *world) open(query string, header ...string) *reader {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	if w.caller != nil {
		var err error
		if ctx, err = (&access.Guard{Listener: access.Public}).Repeat(ctx, *w.caller); err != nil {
			w.Fatal(err)
		}
	}
	r := &reader{w: w, header: http.Header{}, cancel: cancel, done: make(chan struct{}), status: http.StatusOK}
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/watch?"+query, nil)
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	go func() {
		w.handler.ServeHTTP(r, request)
		close(r.done)
	}()
	w.Cleanup(cancel)
	synctest.Wait()
	return r
}

func (r *reader) Header() http.Header { return r.header }

func (r *reader) WriteHeader(status int) { r.status = status }

func (r *reader) Flush() {}

func (r *reader) SetWriteDeadline(at time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = at
	return nil
}

func (r *reader) Write(b []byte) (int, error) {
	r.mu.Lock()
	blocked, deadline := r.blocked, r.deadline
	r.mu.Unlock()
	if blocked != nil {
		select {
		case <-blocked:
		case <-time.After(time.Until(deadline)):
			return 0, os.ErrDeadlineExceeded
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += string(b)
	return len(b), nil
}

// close disconnects the reader.
func (r *reader) close() {
	r.cancel()
	<-r.done
}

// block stops reading.
func (r *reader) block() { r.blocked = make(chan struct{}) }

// unblock continues to read.
func (r *reader) unblock() {
	r.mu.Lock()
	close(r.blocked)
	r.blocked = nil
	r.mu.Unlock()
	synctest.Wait()
}

// take returns what the stream has written since the last take: the data of its events and its
// comments, one in each line, sorted. Answers of different paths have no order.
func (r *reader) take() string {
	r.w.Helper()
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var lines []string
	for block := range strings.SplitSeq(strings.TrimSuffix(r.text, "\n\n"), "\n\n") {
		id, data, found := strings.Cut(block, "\nevent: answer\ndata: ")
		if id, ok := strings.CutPrefix(id, "id: "); found && ok {
			r.last, block = id, data
			if !json.Valid([]byte(data)) {
				r.w.Errorf("the data of an event is %s", data)
			}
		}
		lines = append(lines, block)
	}
	r.text = ""
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (r *reader) want(want ...string) {
	r.w.Helper()
	slices.Sort(want)
	if got := r.take(); got != strings.Join(want, "\n") {
		r.w.Errorf("the stream has\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func answered(path, text string) string { return fmt.Sprintf(`{"path":"%s","answer":%s}`, path, text) }

func TestEachAnswerAndThenItsChanges(t *testing.T) {
	bubble(t, func(w *world) {
		w.set("/v1/a", `{"items":[1],"revision":"1"}`, nil)
		r := w.open("path=/v1/a&path=/v1/b%3Fx%3D1%26y%3D%3C")
		if got := r.header.Get("Content-Type"); got != "text/event-stream" {
			t.Errorf("the content type is %q", got)
		}
		r.want(answered("/v1/a", `{"items":[1],"revision":"1"}`), answered("/v1/b?x=1&y=<", "{}"))
		w.set("/v1/a", `{"items":[1],"revision":"2","now":"x","cursor":"2-1"}`, nil)
		time.Sleep(10 * time.Second)
		r.want("")
		w.set("/v1/a", `{"items":[1,2],"revision":"3"}`, nil)
		time.Sleep(time.Second)
		r.want(answered("/v1/a", `{"items":[1,2],"revision":"3"}`))
		w.set("/v1/a", `{"items":[1],"nested":{"revision":"3"}}`, nil)
		time.Sleep(time.Second)
		r.want(answered("/v1/a", `{"items":[1],"nested":{"revision":"3"}}`))
		// A new stream gets the latest answer, even if the older streams did not.
		w.set("/v1/a", `{"items":[1],"nested":{"revision":"3"},"revision":"9"}`, nil)
		time.Sleep(time.Second)
		r.want("")
		w.open("path=/v1/a").want(answered("/v1/a", `{"items":[1],"nested":{"revision":"3"},"revision":"9"}`))
	})
}

// A list in which only ages differ has not changed. A text that looks like an age is no age.
func TestAgesAreNoChange(t *testing.T) {
	bubble(t, func(w *world) {
		w.set("/v1/a", `{"groups":[{"id":"g","headAge":"1s"}],"age":"1.5s"}`, nil)
		r := w.open("path=/v1/a")
		r.want(answered("/v1/a", `{"groups":[{"id":"g","headAge":"1s"}],"age":"1.5s"}`))
		w.set("/v1/a", `{"groups":[{"id":"g","headAge":"2.25s"}],"age":"3s"}`, nil)
		time.Sleep(2 * time.Second)
		r.want("")
		text := `{"groups":[{"id":"\"headAge\":\"2s\"","headAge":"3s"}],"age":"3s"}`
		w.set("/v1/a", text, nil)
		time.Sleep(2 * time.Second)
		r.want(answered("/v1/a", text))
	})
}

func TestAQuietStreamHasHeartbeats(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open("path=/v1/a")
		r.take()
		time.Sleep(2 * heartbeat)
		r.want(": alive", ": alive")
	})
}

// The number of calls does not depend on the number of streams.
func TestStreamsShareTheirCalls(t *testing.T) {
	bubble(t, func(w *world) {
		var query []string
		for i := range 6 {
			query = append(query, fmt.Sprintf("path=/v1/%d", i))
		}
		var readers []*reader
		for range 50 {
			readers = append(readers, w.open(strings.Join(query, "&")))
		}
		if n := w.count(); n != 6 {
			t.Errorf("%d calls for the first answers, want 6", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.count(); n != 60 {
			t.Errorf("%d calls in 10 s, want 60", n)
		}
		w.set("/v1/3", `{"new":true}`, nil)
		time.Sleep(time.Second)
		for _, r := range readers {
			if got := r.take(); !strings.Contains(got, answered("/v1/3", `{"new":true}`)) {
				t.Fatalf("the stream has %s", got)
			}
		}
		// The last stream of a path ends its calls.
		for _, r := range readers {
			r.close()
		}
		synctest.Wait()
		w.count()
		time.Sleep(time.Minute)
		if n := w.count(); n != 0 {
			t.Errorf("%d calls without a stream", n)
		}
		w.memory(0)
	})
}

// Operators get the same answers, and so do viewers. Job services do not, and an answer with the
// name of its caller is for that caller only.
func TestCallersShareTheirCalls(t *testing.T) {
	for _, c := range []struct {
		role, other identity.Role
		path        string
		calls       int // each second, for two callers
	}{
		{identity.Viewer, identity.Operator, "/v1/leaders", 1},
		{identity.Operator, identity.Viewer, "/v1/leaders", 1},
		{identity.Operator, identity.Viewer, "/v1/caller", 2},
		{identity.Operator, identity.Viewer, "/v1/audit", 2},
		{identity.Job, identity.Viewer, "/v1/jobs", 2},
		{identity.Autoscaler, identity.Viewer, "/v1/usage", 2},
	} {
		t.Run(c.role.String()+c.path, func(t *testing.T) {
			bubble(t, func(w *world) {
				open := func(role identity.Role, name string) *reader {
					w.caller = &access.Caller{Identity: &identity.Identity{Cluster: "default", Role: role, Name: name}}
					return w.open("path=" + c.path)
				}
				first := open(c.role, "a")
				open(c.role, "b")
				last := open(c.role, "c")
				first.close() // the others still get their answers
				synctest.Wait()
				w.count()
				time.Sleep(time.Second)
				synctest.Wait()
				if n := w.count(); n != c.calls {
					t.Errorf("%d calls, want %d", n, c.calls)
				}
				last.take()
				w.set(c.path, `{"new":true}`, nil)
				time.Sleep(time.Second)
				last.want(answered(c.path, `{"new":true}`))
				w.count()
				open(c.other, "a")
				if n := w.count(); n != 1 {
					t.Errorf("%d calls for a caller with another role, want 1", n)
				}
			})
		})
	}
}

// The answer about a caller reports whether the caller has a session.
func TestASessionHasItsOwnAnswer(t *testing.T) {
	for path, want := range map[string]int{"/v1/caller": 2, "/v1/leaders": 1} {
		bubble(t, func(w *world) {
			for _, session := range []bool{false, true} {
				w.caller = &access.Caller{Session: session,
					Identity: &identity.Identity{Cluster: "default", Role: identity.Viewer, Name: "a"}}
				w.open("path=" + path)
			}
			if n := w.count(); n != want {
				t.Errorf("%d calls for %s, want %d", n, path, want)
			}
		})
	}
}

func TestAStreamResumes(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open("path=/v1/a&path=/v1/b")
		r.take()
		last := r.last
		r.close()
		w.set("/v1/b", `{"new":1}`, nil)
		// A browser that reconnects repeats its first URL and adds Last-Event-ID.
		r = w.open("path=/v1/a&path=/v1/b&since=AAAAAAAAAAAAAAAAAAAAAA", "Last-Event-ID", last)
		r.want(answered("/v1/b", `{"new":1}`))
		w.open("path=/v1/a&path=/v1/b&since=" + r.last).want("")
		// The same answers belong to other paths.
		w.open("path=/v1/b&path=/v1/a&since="+r.last).want(answered("/v1/b", `{"new":1}`), answered("/v1/a", "{}"))
		// An error is resumed like an answer, although the call is made again.
		w.set("/v1/a", "", fault.New(fault.Denied, fault.ReasonPermissionDenied, "no"))
		r = w.open("path=/v1/a&path=/v1/c")
		r.take()
		time.Sleep(time.Second)
		r.take()
		w.count()
		w.open("path=/v1/a&path=/v1/c&since=" + r.last).want("")
		if n := w.made["/v1/a"]; n != 1 {
			t.Errorf("%d calls", n)
		}
		for _, since := range []string{"x", "AAAA", r.last + "A", r.last[:11], "=", r.last[:len(r.last)-1] + "_"} {
			refused := w.open("path=/v1/a&path=/v1/b&since=" + since)
			if got := refused.take(); refused.status != http.StatusBadRequest || !strings.Contains(got, `"field":"since"`) {
				t.Errorf("%s: %d %s", since, refused.status, got)
			}
		}
	})
}

// A stream that begins while a path has no answer yet has a cursor for the others.
func TestResumeBeforeTheFirstAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		w.take(time.Second)
		w.open("path=/v1/b")
		r := w.open("path=/v1/a&path=/v1/b")
		time.Sleep(time.Second)
		r.take()
		w.take(0)
		w.open("path=/v1/a&path=/v1/b&since=" + r.last).want("")
	})
}

func TestAChangeOfALeaderRepeatsTheCalls(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.open("path=/v1/a&path=/v1/b")
		r.take()
		w.count()
		begun := time.Now()
		w.set("/v1/a", `{"leader":""}`, nil)
		w.server.Reached("berth.v1.Usage", true)
		r.want(answered("/v1/a", `{"leader":""}`))
		// The replicas have their new roles a moment later.
		w.set("/v1/a", `{"leader":"b"}`, nil)
		time.Sleep(100 * time.Millisecond)
		r.want(answered("/v1/a", `{"leader":"b"}`))
		if took := time.Since(begun); took != 100*time.Millisecond || w.count() != 4 {
			t.Errorf("the changes took %v", took)
		}
		time.Sleep(500 * time.Millisecond)
		w.server.Reached("berth.v1.Usage", true) // no change
		synctest.Wait()
		if n := w.count(); n != 0 {
			t.Errorf("%d calls without a change", n)
		}
		// A service whose connection changes all the time causes a bounded number of calls.
		for i := range 1000 {
			w.server.Reached("berth.v1.Usage", i%2 == 0)
			time.Sleep(time.Millisecond)
		}
		if n := w.count(); n > 2*11 {
			t.Errorf("%d calls of 2 paths in a second", n)
		}
	})
}

// A wake-up during a call is not lost: the call may have read what was before the change.
func TestAWakeUpDuringACall(t *testing.T) {
	bubble(t, func(w *world) {
		const takes = 300 * time.Millisecond
		w.take(takes)
		w.open("path=/v1/a")
		w.server.Reached("berth.v1.Usage", true)
		time.Sleep(takes + time.Millisecond)
		if n := w.count(); n != 2 {
			t.Errorf("%d calls, want a second one that follows the first", n)
		}
	})
}

func TestSlowCallsAreRarer(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{
		0: time.Second, 50 * time.Millisecond: time.Second, 100 * time.Millisecond: 2 * time.Second,
		time.Second: 5 * time.Second,
	} {
		bubble(t, func(w *world) {
			w.take(takes)
			w.open("path=/v1/a")
			time.Sleep(takes)
			synctest.Wait()
			w.count()
			time.Sleep(want - time.Nanosecond)
			synctest.Wait()
			early := w.count()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			if n := w.count(); early != 0 || n != 1 {
				t.Errorf("a call that takes %v is not repeated after %v: %d before, %d then", takes, want, early, n)
			}
		})
	}
}

func TestErrors(t *testing.T) {
	bubble(t, func(w *world) {
		for path, err := range map[string]error{
			"/v1/denied":  fault.New(fault.Denied, fault.ReasonPermissionDenied, "no"),
			"/v1/invalid": fault.BadField(fault.ReasonInvalid, "x", "no"),
			"/v1/missing": fault.New(fault.NotFound, fault.ReasonNotFound, "no"),
			"/v1/down":    fault.New(fault.Unavailable, fault.ReasonUnavailable, "no"),
			"/v1/limited": fault.New(fault.Exhausted, fault.ReasonTenantLimit, "1"),
		} {
			w.set(path, "", err)
		}
		r := w.open("path=/v1/denied&path=/v1/invalid&path=/v1/missing&path=/v1/down&path=/v1/limited")
		got := r.take()
		for _, want := range []string{`{"path":"/v1/denied","error":{"code":7,"message":"no"`, `{"path":"/v1/invalid","error":{"code":3`,
			`{"path":"/v1/missing","error":{"code":5`, `{"path":"/v1/down","error":{"code":14`, `{"path":"/v1/limited","error":{"code":8`} {
			if strings.Count(got, want) != 1 {
				t.Errorf("no %s in %s", want, got)
			}
		}
		// The same error with other numbers is no change.
		w.set("/v1/limited", "", fault.New(fault.Exhausted, fault.ReasonTenantLimit, "2"))
		w.calls.count()
		time.Sleep(3 * time.Second)
		r.want("")
		if got, want := w.made, map[string]int{"/v1/missing": 3, "/v1/down": 3, "/v1/limited": 3}; !maps.Equal(got, want) {
			t.Errorf("repeated are %v, want %v", got, want)
		}
		w.set("/v1/missing", `{}`, nil)
		w.set("/v1/down", "", fault.New(fault.Unavailable, fault.ReasonOverloaded, "no"))
		time.Sleep(time.Second)
		if got := r.take(); !strings.Contains(got, answered("/v1/missing", `{}`)) || !strings.Contains(got, "OVERLOADED") {
			t.Errorf("the stream has %s", got)
		}
		// Another stream makes the call of its own.
		w.calls.count()
		if got := w.open("path=/v1/denied").take(); !strings.Contains(got, `"code":7`) || w.made["/v1/denied"] != 1 {
			t.Errorf("the stream has %s after %v", got, w.made)
		}
	})
}

// A call that gets no answer ends with its deadline, and is repeated.
func TestACallHasADeadline(t *testing.T) {
	bubble(t, func(w *world) {
		w.take(time.Hour)
		r := w.open("path=/v1/a")
		time.Sleep(5 * time.Second)
		if got := r.take(); !strings.Contains(got, `"error":{"code":14`) {
			t.Errorf("the stream has %s", got)
		}
		w.take(0)
		time.Sleep(time.Second)
		r.want(answered("/v1/a", "{}"))
	})
}

// panics panics in every call.
type panics struct{ *calls }

func (panics) Get(context.Context, *url.URL, int) (int, []byte) { panic("a defect") }

func TestAPanicIsAnErrorOfThePath(t *testing.T) {
	bubble(t, func(w *world) {
		w.handler = w.server.Handler(panics{w.calls})
		if got := w.open("path=/v1/a").take(); !strings.Contains(got, "INTERNAL") {
			t.Errorf("the stream has %s", got)
		}
	})
}

// A reader that does not read delays no other, and gets only the latest answers.
func TestASlowReader(t *testing.T) {
	bubble(t, func(w *world) {
		large := func(i int) string { return fmt.Sprintf(`{"n":%d,"text":"%s"}`, i, strings.Repeat("x", 1<<20)) }
		w.set("/v1/a", large(0), nil)
		slow, fast := w.open("path=/v1/a"), w.open("path=/v1/a")
		slow.take()
		fast.take()
		slow.block()
		for i := 1; i < 10; i++ {
			w.set("/v1/a", large(i), nil)
			time.Sleep(time.Second)
			if got := fast.take(); got != answered("/v1/a", large(i)) {
				t.Fatalf("the fast reader has no answer %d", i)
			}
			w.memory(min(i, 2) << 20) // the answer that the slow reader reads, and the latest
		}
		slow.unblock()
		if got := slow.take(); got != answered("/v1/a", large(1))+"\n"+answered("/v1/a", large(9)) {
			t.Error("the slow reader does not have the first and the last answer")
		}
		w.memory(1 << 20)

		slow.block()
		w.set("/v1/a", large(10), nil)
		time.Sleep(time.Second + 2*patience)
		<-slow.done
		if len(w.ended) != 1 || !fault.Is(w.ended[0], fault.ReasonSlowReader) {
			t.Errorf("ended are %v", w.ended)
		}
		fast.close()
		if len(w.ended) != 2 || w.ended[1] != nil {
			t.Errorf("ended are %v", w.ended)
		}
		w.memory(0)
	})
}

// memory checks the memory of answers, in bytes, to the MiB.
func (w *world) memory(want int) {
	w.Helper()
	synctest.Wait()
	if got := w.server.Memory(); got>>20 != want>>20 {
		w.Errorf("the answers take %d bytes, want %d", got, want)
	}
}

func TestTheMemoryOfAnswersIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		large := fmt.Sprintf(`{"text":"%s"}`, strings.Repeat("x", 4<<20-100))
		var readers []*reader
		for i := range 5 {
			var query []string
			for j := range 4 {
				path := fmt.Sprintf("/v1/%d/%d", i, j)
				w.set(path, large, nil)
				query = append(query, "path="+path)
			}
			readers = append(readers, w.open(strings.Join(query, "&")))
		}
		refused := strings.Count(readers[4].take(), "OVERLOADED")
		if refused != 4 {
			t.Errorf("%d answers are refused, want 4", refused)
		}
		readers[0].close()
		time.Sleep(time.Second)
		if got := strings.Count(readers[4].take(), `"answer":`); got != 4 {
			t.Errorf("%d answers after others were freed, want 4", got)
		}
	})
}

func TestTheNumberOfPathsIsBounded(t *testing.T) {
	bubble(t, func(w *world) {
		open := func(i int) *reader {
			var query []string
			for j := range 16 {
				query = append(query, fmt.Sprintf("path=/v1/%d/%d", i, j))
			}
			return w.open(strings.Join(query, "&"))
		}
		var first *reader
		for i := range 31 { // 496 paths
			r := open(i)
			if first == nil {
				first = r
			}
		}
		if r := open(31); r.status != http.StatusTooManyRequests || !strings.Contains(r.text, "of one caller") {
			t.Errorf("the paths of one caller: %d %s", r.status, r.text)
		}
		w.ended = nil
		other := identity.Identity{Cluster: "default", Role: identity.Viewer, Name: "other"}
		w.caller = &access.Caller{Identity: &other}
		for i := range 31 {
			open(i)
		}
		w.caller = &access.Caller{Identity: &identity.Identity{Cluster: "default", Role: identity.Viewer, Name: "third"}}
		if r := open(32); r.status != http.StatusServiceUnavailable || !strings.Contains(r.text, "OVERLOADED") {
			t.Errorf("the paths of all callers: %d %s", r.status, r.text)
		}
		w.caller = nil
		if len(w.ended) != 1 || !fault.Is(w.ended[0], fault.ReasonOverloaded) {
			t.Errorf("ended are %v", w.ended)
		}
		if r := open(0); r.status != http.StatusOK {
			t.Errorf("a stream of the same paths: %d %s", r.status, r.text)
		}
		first.close()
		w.full = fault.New(fault.Exhausted, fault.ReasonTenantLimit, "no")
		if r := open(0); r.status != http.StatusTooManyRequests {
			t.Errorf("a stream beyond the limit of streams: %d %s", r.status, r.text)
		}
	})
}

// A caller's share has the paths of its own streams, regardless of which caller opened them first.
func TestTheShareOfACaller(t *testing.T) {
	bubble(t, func(w *world) {
		open := func(name string, i int) *reader {
			var query []string
			for j := range 16 {
				query = append(query, fmt.Sprintf("path=/v1/%d/%d", i, j))
			}
			w.caller = &access.Caller{Identity: &identity.Identity{Cluster: "default", Role: identity.Viewer, Name: name}}
			return w.open(strings.Join(query, "&"))
		}
		var first []*reader
		for i := range 31 { // 496 paths
			first = append(first, open("a", i))
		}
		for i := range 31 {
			open("b", i)
		}
		for _, r := range first {
			r.close()
		}
		synctest.Wait()
		if r := open("a", 31); r.status != http.StatusOK {
			t.Errorf("a caller without a stream: %d %s", r.status, r.text)
		}
		if r := open("b", 32); r.status != http.StatusTooManyRequests {
			t.Errorf("a caller with 496 paths of another one: %d %s", r.status, r.text)
		}
	})
}

func TestStreamsEndWithTheGateway(t *testing.T) {
	bubble(t, func(w *world) {
		w.take(time.Second)
		r := w.open("path=/v1/a")
		w.stop()
		<-r.done
		const want = "event: error\ndata: {\"code\":14,\"message\":\"this gateway is stopping"
		if got := r.take(); !strings.HasPrefix(got, want) {
			t.Errorf("the stream has %s", got)
		}
		if r := w.open("path=/v1/a"); r.status != http.StatusServiceUnavailable {
			t.Errorf("a new stream has %d", r.status)
		}
	})
}
