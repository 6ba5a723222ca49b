package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth.dev/api/fault"
)

func TestTheOldestIncompleteRequestIsAborted(t *testing.T) {
	b := NewBudget(100)
	var aborted []string
	begin := func(name string) *Hold { return b.Begin(func() { aborted = append(aborted, name) }) }
	whole, oldest, newer := begin("whole"), begin("oldest"), begin("newer")
	for _, h := range []*Hold{whole, oldest, newer} {
		if !h.Grow(30) {
			t.Fatal("90 of 100 bytes do not fit")
		}
	}
	if !whole.Whole() {
		t.Error("a request within the limit is not complete")
	}
	if !newer.Grow(30) || fmt.Sprint(aborted) != "[oldest]" {
		t.Fatalf("aborted %v; the oldest that is not whole was due", aborted)
	}
	if oldest.Grow(1) || oldest.Whole() {
		t.Error("an aborted request continues")
	}
	if newer.Grow(20) {
		t.Error("the only unfinished request exceeded the limit")
	}
	for _, h := range []*Hold{whole, oldest, newer, oldest} {
		h.End()
	}
	if used := b.Used(); used != 0 || b.dropping != 0 {
		t.Errorf("%d bytes are in use, %d of them dropped, without a request", used, b.dropping)
	}
}

// If a request cannot fit into the budget, it does not abort other requests.
func TestATooLargeRequestAbortsNoOther(t *testing.T) {
	b := NewBudget(100)
	aborted := false
	other := b.Begin(func() { aborted = true })
	if !other.Grow(10) {
		t.Fatal("10 of 100 bytes do not fit")
	}
	whole := b.Begin(func() {})
	if !whole.Grow(30) || !whole.Whole() {
		t.Fatal("40 of 100 bytes do not fit")
	}
	if b.Take(101) != nil || whole.Grow(71) {
		t.Error("101 of 100 bytes fit")
	}
	if aborted || !other.Whole() {
		t.Error("another request was aborted")
	}
	other.End()
	whole.End()
}

func TestAWaitingRequestGetsReleasedMemory(t *testing.T) {
	b := NewBudget(100)
	asked := make(chan struct{})
	first := b.Begin(func() { close(asked) })
	if !first.Grow(100) {
		t.Fatal("no room")
	}
	got := make(chan bool)
	second := b.Begin(func() {})
	go func() { got <- second.GrowWaiting(50) }()
	<-asked
	first.End()
	if !<-got {
		t.Error("the released memory was not given to the waiting request")
	}
	second.End()
}

// If many requests wait for the same memory, each request gets the memory in turn or is
// aborted for a later request.
func TestNoRequestWaitsForever(t *testing.T) {
	b := NewBudget(100)
	asked := make(chan struct{})
	first := b.Begin(func() { close(asked) })
	if !first.Grow(100) {
		t.Fatal("no room")
	}
	var all sync.WaitGroup
	var got atomic.Int64
	for range 200 {
		all.Go(func() {
			h := b.Begin(func() {})
			defer h.End()
			for range 2 {
				if !h.GrowWaiting(30) {
					return
				}
			}
			got.Add(1)
		})
	}
	<-asked
	first.End()
	all.Wait()
	if got.Load() == 0 {
		t.Error("no request got the released memory")
	}
	if b.used != 0 || b.dropping != 0 || b.waiting.Len() != 0 {
		t.Errorf("%d bytes are in use, %d of them of aborted requests, and %d requests wait", b.used, b.dropping,
			b.waiting.Len())
	}
}

// serve serves HTTP/1 behind a guard.
func serve(t *testing.T, limits Limits, handler http.Handler) (*Guard, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := New(limits)
	s := g.HTTPServer(handler, 1<<20, func(w http.ResponseWriter, code int, f *fault.Error) {
		w.WriteHeader(code)
		io.WriteString(w, string(f.Reason)+" "+f.Message) //nolint:errcheck // a test
	})
	done := make(chan struct{})
	go func() { defer close(done); s.Serve(g.HTTP1(g.Listener(l))) }()
	t.Cleanup(func() { s.Close(); <-done })
	return g, l.Addr().String()
}

func dial(t *testing.T, address, text string) *bufio.Reader {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(c)
}

func answer(t *testing.T, r *bufio.Reader) (int, string) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

func TestAConnectionBeyondTheLimitIsAnswered503(t *testing.T) {
	g, address := serve(t, Limits{Connections: 1, Memory: 1 << 20},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // until the client disconnects
		}))
	dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for g.Connections() < 1 {
		runtime.Gosched()
	}
	code, text := answer(t, dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "OVERLOADED") {
		t.Errorf("got %d %s", code, text)
	}
	if n := g.Connections(); n > 1 {
		t.Errorf("%d connections are counted", n)
	}
}

func TestABodyThatIsAbortedForOthersIsAnswered503(t *testing.T) {
	got := make(chan int, 1)
	g, address := serve(t, Limits{Connections: 100, Memory: 256 << 10},
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			got <- len(body)
		}))
	slow := dial(t, address, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 250000\r\n\r\n"+strings.Repeat("x", 240_000))
	for g.Memory() < 240_000 {
		runtime.Gosched()
	}
	answer(t, dial(t, address, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 25000\r\n\r\n"+strings.Repeat("y", 25_000)))
	if n := <-got; n != 25_000 {
		t.Errorf("the handler got %d bytes", n)
	}
	if code, text := answer(t, slow); code != http.StatusServiceUnavailable || !strings.HasPrefix(text, "OVERLOADED") {
		t.Errorf("got %d %s", code, text)
	}
}

func TestABodyBeyondTheLimitIsAnswered413(t *testing.T) {
	_, address := serve(t, Limits{Connections: 10, Memory: 4 << 20}, http.NotFoundHandler())
	for _, length := range []string{"Content-Length: 1048577\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n100001\r\n"} {
		r := dial(t, address, "PUT / HTTP/1.1\r\nHost: a\r\n"+length+strings.Repeat("x", 1<<20+1))
		if code, text := answer(t, r); code != http.StatusRequestEntityTooLarge ||
			!strings.HasPrefix(text, "TOO_LARGE the body is larger than 1048576 bytes") {
			t.Errorf("%s: got %d %s", length, code, text)
		}
	}
}

func TestAHeadBeyondTheLimitIsAnswered431(t *testing.T) {
	_, address := serve(t, Limits{Connections: 10, Memory: 1 << 20}, http.NotFoundHandler())
	code, _ := answer(t, dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", HeaderLimit+8<<10)))
	if code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("got %d", code)
	}
}

// manyHeaders returns a request with many short header fields. Together they are smaller
// than HeaderLimit.
func manyHeaders() string {
	var b strings.Builder
	b.WriteString("GET / HTTP/1.1\r\nHost: a\r\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "A%x:\r\n", i)
	}
	return b.String() + "\r\n"
}

func TestHeadersTakeMemoryWhileTheRequestIsHandled(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	g, address := serve(t, Limits{Connections: 100, Memory: 4 << 20},
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			begun <- struct{}{}
			<-end
		}))
	first := dial(t, address, manyHeaders())
	<-begun
	if used := g.Memory(); used < 1_000_000 {
		t.Errorf("%d bytes are in use for 5000 header fields", used)
	}
	if code, text := answer(t, dial(t, address, manyHeaders())); code != http.StatusServiceUnavailable ||
		!strings.HasPrefix(text, "OVERLOADED") {
		t.Errorf("a second request with as many was answered %d %s", code, text)
	}
	small := dial(t, address, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-begun
	close(end)
	for _, r := range []*bufio.Reader{first, small} {
		if code, _ := answer(t, r); code != http.StatusOK {
			t.Errorf("got %d", code)
		}
	}
	for g.Memory() > 0 {
		runtime.Gosched()
	}
}

// feeding is a connection whose input comes from feed.
type feeding struct{ net.Conn }

func (feeding) Close() error { return nil }

// feed passes text to a connection in pieces of the given size, as if the connection had
// read them.
func feed(c *http2, text []byte, size int) {
	for len(text) > 0 && c.failed == nil {
		n := min(size, len(text))
		c.mu.Lock()
		c.in.feed(text[:n], c.received, c.data)
		c.settle()
		c.mu.Unlock()
		text = text[n:]
	}
}

func frameOf(kind, flags byte, stream byte, payload ...byte) []byte {
	return append([]byte{0, byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, stream}, payload...)
}

func TestIncompleteMessagesTakeMemory(t *testing.T) {
	begun := append(make([]byte, prefaceLength), frameOf(frameHeaders, flagEndHeaders, 1)...)
	message := append([]byte{0, 0, 0, 0, 100}, make([]byte, 100)...)
	for _, size := range []int{1, 2, 7, 9, 1000} {
		for _, test := range []struct {
			name       string
			text       []byte
			oneMessage bool
			held       int64
			unfinished int
			failed     error
		}{
			{"begun", nil, true, 0, 1, nil},
			{"begun, and more may follow", nil, false, 0, 1, nil},
			{"half of a prefix", frameOf(frameData, 0, 1, 0, 0), false, 2, 1, nil},
			{"whole, and the next may wait", frameOf(frameData, 0, 1, message...), false, 0, 0, nil},
			{"unfinished", frameOf(frameData, 0, 1, message[:60]...), true, 60, 1, nil},
			{"whole", frameOf(frameData, flagEndStream, 1, message...), true, 0, 0, nil},
			{"whole, but the stream continues", frameOf(frameData, 0, 1, message...), true, 105, 1, nil},
			{"whole, and the stream ends later", append(frameOf(frameData, 0, 1, message...),
				frameOf(frameData, flagEndStream, 1)...), true, 0, 0, nil},
			{"padded", frameOf(frameData, flagPadded, 1, append(append([]byte{3}, message[:60]...), 0, 0, 0)...), true, 60, 1,
				nil},
			{"the second of two", frameOf(frameData, 0, 1, append(append([]byte{}, message...), message[:20]...)...), false, 20,
				1, nil},
			{"two messages instead of one", frameOf(frameData, 0, 1, append(append([]byte{}, message...), message[:20]...)...),
				true,
				0, 0, errSecondData},
			{"reset", append(frameOf(frameData, 0, 1, message[:60]...), frameOf(frameResetStream, 0, 1, 0, 0, 0, 8)...), true,
				0, 0, nil},
			{"half of a head", frameOf(frameHeaders, flagEndHeaders, 3, make([]byte, 50)...)[:frameHeader+40], false, 40, 3,
				nil},
		} {
			g := New(Limits{Connections: 1, Memory: 1 << 20, OneMessage: test.oneMessage})
			c := g.watch(feeding{})
			feed(c, append(append([]byte{}, begun...), test.text...), size)
			g.budget.mu.Lock()
			used, unfinished := g.budget.used, g.budget.unfinished.Len()
			g.budget.mu.Unlock()
			held := used >= test.held && used <= test.held+2*frameHeader
			if c.failed != test.failed || test.failed == nil && (!held || unfinished != test.unfinished) {
				t.Errorf("%s by %d: %d bytes in %d requests are in use, want %d in %d; %v", test.name, size, used, unfinished,
					test.held, test.unfinished, c.failed)
			}
			c.Close()
			if used := g.Memory(); used != 0 {
				t.Errorf("%s by %d: a closed connection uses %d bytes", test.name, size, used)
			}
		}
	}
}

// A server decodes the first frames of a header block before the last frame arrives. An
// incomplete header block therefore already uses the memory of decoded headers.
func TestAHeaderBlockTakesTheMemoryOfDecodedHeaders(t *testing.T) {
	c := New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	defer c.Close()
	feed(c, append(make([]byte, prefaceLength), frameOf(frameHeaders, 0, 1, make([]byte, 50)...)...), 1000)
	if used := c.guard.Memory(); used < 50*decodedHeader {
		t.Errorf("%d bytes are in use for an incomplete block of 50", used)
	}
	feed(c, frameOf(frameContinuation, flagEndHeaders, 1, 0), 1000)
	if used := c.guard.Memory(); used != 0 {
		t.Errorf("%d bytes are in use for a complete block", used)
	}
}

// If messages follow each other without a gap, each message gets a time limit of its own.
// The sizes of the reads do not matter.
func TestEachMessageHasItsOwnTime(t *testing.T) {
	c := New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	defer c.Close()
	feed(c, append(make([]byte, prefaceLength), frameOf(frameHeaders, flagEndHeaders, 1)...), 100)
	message := append([]byte{0, 0, 0, 0, 100}, make([]byte, 100)...)
	feed(c, frameOf(frameData, 0, 1, message[:20]...), 100)
	first := c.streams[1].hold
	feed(c, frameOf(frameData, 0, 1, append(append([]byte{}, message[20:]...), message[:60]...)...), 1000)
	if second := c.streams[1].hold; first == nil || second == nil || second == first {
		t.Errorf("the first message has the memory %p, the second %p", first, second)
	}
	if used := c.guard.Memory(); used != 60 {
		t.Errorf("%d bytes are in use, want 60", used)
	}
}

// The same holds for frames, although each read may end within a frame.
func TestEachFrameHasItsOwnTime(t *testing.T) {
	c := New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	defer c.Close()
	feed(c, make([]byte, prefaceLength), prefaceLength)
	ping := frameOf(6, 0, 0, make([]byte, 8)...)
	feed(c, ping[:12], 100)
	first := c.head
	feed(c, append(append([]byte{}, ping[12:]...), ping[:12]...), 100)
	if second := c.head; first == nil || second == nil || second == first {
		t.Errorf("the first frame has the memory %p, the second %p", first, second)
	}
	// All frames of a header block share one time limit.
	c = New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	defer c.Close()
	feed(c, append(make([]byte, prefaceLength), frameOf(frameHeaders, 0, 1, 1, 2, 3)...), 100)
	first = c.head
	feed(c, append(frameOf(frameContinuation, 0, 1, 1, 2, 3), frameOf(frameContinuation, 0, 1, 1)[:10]...), 100)
	if c.head != first || first == nil {
		t.Error("a header block gets more time with each frame")
	}
}

// Stalls of the gateway's process and of the network would add up over the weeks of a
// stream. Therefore stalls no longer count after the peer has read everything.
func TestOldStallsDoNotCount(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	g := New(Limits{Connections: 1, Memory: 1 << 20})
	g.connections.Add(1)
	c := &conn{Conn: near, guard: g, waited: patience}
	defer c.Close()
	go io.Copy(io.Discard, far) //nolint:errcheck // until far is closed
	if _, err := c.Write([]byte("x")); err != nil {
		t.Errorf("a write after a long rest: %v", err)
	}
	// Every write to this peer stalls.
	c.mu.Lock()
	c.waited = patience + time.Hour
	c.mu.Unlock()
	if _, err := c.Write(make([]byte, 100)); err == nil {
		t.Error("the connection of a peer that stalls all the time is open")
	}
}

func TestAConnectionThatResetsWithoutEndIsClosed(t *testing.T) {
	c := New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	feed(c, make([]byte, prefaceLength), prefaceLength)
	for n := range 10 * resetBurst {
		feed(c, frameOf(frameResetStream, 0, byte(n%100), 0, 0, 0, 8), 100)
		if c.failed != nil {
			if n < resetBurst {
				t.Errorf("closed after %d resets", n)
			}
			return
		}
	}
	t.Error("the connection is open")
}

// A few resets, for example of calls whose deadline passes, do not slow down a connection.
// A flood of resets does.
func TestManyResetsSlowDownAConnection(t *testing.T) {
	c := New(Limits{Connections: 1, Memory: 1 << 20}).watch(feeding{})
	defer c.Close()
	feed(c, make([]byte, prefaceLength), prefaceLength)
	reset := frameOf(frameResetStream, 0, 1, 0, 0, 0, 8)
	if n, err := c.take(bytes.Repeat(reset, resetFree)); n > 0 || err != nil {
		t.Errorf("%d of %d resets slow down the connection: %v", n, resetFree, err)
	}
	if n, err := c.take(bytes.Repeat(reset, resetBurst/2)); n < resetBurst/4 || err != nil {
		t.Errorf("only %d of %d more resets slow down the connection: %v", n, resetBurst/2, err)
	}
	if n, _ := c.take(nil); n > 0 {
		t.Errorf("%d resets count twice", n)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add([]byte(frameOf(frameHeaders, flagEndHeaders, 1)), 3, true)
	f.Add(append(frameOf(frameHeaders, 4, 1), frameOf(frameData, flagPadded|flagEndStream, 1, 2, 0, 0, 0, 0, 1, 9, 0,
		0)...), 1, false)
	f.Fuzz(func(t *testing.T, text []byte, size int, oneMessage bool) {
		if size < 1 {
			size = 1
		}
		held := func(size int) (int64, int, error) {
			g := New(Limits{Connections: 1, Memory: 1 << 30, OneMessage: oneMessage})
			c := g.watch(feeding{})
			feed(c, append(make([]byte, prefaceLength), text...), size)
			used, streams, failed := g.Memory(), len(c.streams), c.failed
			c.Close()
			if left := g.Memory(); left != 0 {
				t.Fatalf("a closed connection uses %d bytes", left)
			}
			if used > decodedHeader*int64(len(text)) {
				t.Fatalf("%d bytes are in use for %d", used, len(text))
			}
			return used, streams, failed
		}
		_, all, failedAll := held(len(text) + prefaceLength + 1)
		if _, pieces, failed := held(size); failed != failedAll || failed == nil && pieces != all {
			t.Fatalf("in pieces of %d: %d streams, %v; at once: %d, %v", size, pieces, failed, all, failedAll)
		}
	})
}
