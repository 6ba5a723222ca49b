package guard

import (
	"cmp"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// watched wraps the credentials of a gRPC server, and parses the frames of the server's
// connections, because the server does not report incomplete requests. With TLS, it parses
// the decrypted frames. A connection is closed if a request on it makes too little progress,
// if another request needs the memory of a request on it, or if the caller resets too many
// streams.
type watched struct {
	credentials.TransportCredentials
	guard *Guard
}

// ServerHandshake implements credentials.TransportCredentials.
func (w *watched) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	c, info, err := w.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	watching := w.guard.watch(c)
	return watching, caller{AuthInfo: info, conn: watching}, nil
}

// Clone implements credentials.TransportCredentials.
func (w *watched) Clone() credentials.TransportCredentials {
	return &watched{w.TransportCredentials.Clone(), w.guard}
}

func (g *Guard) watch(c net.Conn) *http2 {
	h := &http2{Conn: c, guard: g, streams: map[uint32]*request{}, resets: resetBurst, counted: time.Now()}
	h.in.preface = prefaceLength
	return h
}

// Numbers of RFC 9113.
const (
	prefaceLength = 24
	frameHeader   = 9

	frameData         = 0
	frameHeaders      = 1
	frameResetStream  = 3
	frameContinuation = 9

	flagEndStream  = 1
	flagEndHeaders = 4
	flagPadded     = 8
)

const (
	// messagePrefix is the size of gRPC's prefix of a message: a flag for compression, and
	// the length of the message.
	messagePrefix = 5
	// decodedHeader is the maximum memory of one byte of a header block that continues in
	// another frame. The server decodes each frame when the frame arrives, and one byte may
	// stand for a complete field.
	decodedHeader = 50
	// resetBurst is the number of streams that a caller may reset at once, and resetRate the
	// number per second after that. An honest caller resets calls whose deadline passes. A
	// rapid-reset attack only begins and resets streams.
	resetBurst = 2000
	resetRate  = 200
	// resetFree is the number of streams that a caller may reset before its connection is
	// read more slowly, and resetCost is the pause for each further reset. All such
	// connections of a listener together therefore begin at most 5,000 calls per second. A
	// call that is reset takes about 50 µs of processor time, and an attacker sends 100,000
	// such calls at once.
	resetFree = 50
	resetCost = 200 * time.Microsecond
	resetWait = time.Second
)

var (
	errSlow       = errors.New("a request did not arrive in time, or its memory was needed")
	errResets     = errors.New("too many streams were reset")
	errSecondData = errors.New("a call has more than one request message")
)

// http2 is an HTTP/2 connection.
type http2 struct {
	net.Conn
	guard *Guard
	// in parses the frames that Read reads, and out the frames that Write writes.
	in, out frames

	mu      sync.Mutex
	streams map[uint32]*request
	newest  uint32
	touched []*request // the requests with a new header or new data since Read began
	// rejected counts the calls that were rejected because of their headers.
	rejected int
	// head is the memory of an incomplete frame or header block. block is true if the
	// header block continues in another frame.
	head    *Hold
	block   bool
	newHead bool // true if a new frame has begun since Read began
	// resets is the number of streams that the caller may reset, at the time counted.
	resets  float64
	excess  int // the number of resets since Read began that cost a pause
	counted time.Time
	failed  error
	closed  bool
}

// request is the state of the messages on one stream.
type request struct {
	prefix  [messagePrefix]byte
	have    int   // the number of bytes of the prefix that have arrived
	left    int64 // the number of bytes of the message that have not arrived
	begun   bool  // true if the prefix has arrived
	whole   bool  // true if at least one message has arrived
	renewed bool  // true if a message was completed since Read began
	ended   bool
	touched bool
	bytes   int64 // the number of arrived bytes of the incomplete message
	hold    *Hold // the memory of these bytes
}

// Read implements net.Conn.
func (c *http2) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	reset, failed := c.take(b[:n])
	if failed != nil {
		go c.Close()
		return 0, failed
	}
	if reset > 0 {
		c.pause(reset)
	}
	return n, err
}

// take parses bytes that were read. It returns the number of stream resets that cost a pause.
func (c *http2) take(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.excess = 0
	c.in.feed(b, c.received, c.data)
	c.settle()
	return c.excess, c.failed
}

// pause waits resetCost for each of a number of stream resets. Connections take turns, so an
// attacker with more connections cannot reset more streams. No connection waits for its turn
// for longer than resetWait. Otherwise an attacker with many connections could block every
// caller that resets streams.
func (c *http2) pause(reset int) {
	select {
	case c.guard.resetting <- struct{}{}:
		time.Sleep(time.Duration(reset) * resetCost)
		<-c.guard.resetting
	case <-time.After(resetWait):
	}
}

// Write implements net.Conn.
func (c *http2) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.out.feed(b, func(f frame) {
		if f.kind == frameResetStream || f.kind == frameHeaders && f.flags&flagEndStream != 0 {
			c.end(f.stream)
		}
	}, func(frame, []byte) {})
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// Close implements net.Conn.
func (c *http2) Close() error {
	c.mu.Lock()
	c.closed = true
	for id := range c.streams {
		c.end(id)
	}
	if c.head != nil {
		c.head.End()
		c.head = nil
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// received handles the header of a frame from the caller.
func (c *http2) received(f frame) {
	c.newHead = c.newHead || f.kind != frameContinuation
	switch f.kind {
	case frameHeaders:
		c.block = f.flags&flagEndHeaders == 0
		// A request that ends with its headers has no message.
		if f.stream > c.newest && f.flags&flagEndStream == 0 {
			c.newest = f.stream
			r := &request{}
			c.streams[f.stream] = r
			c.touch(r) // the first message is due
		} else if f.flags&flagEndStream != 0 {
			c.newest = max(c.newest, f.stream)
			c.end(f.stream)
		}
	case frameContinuation:
		c.block = f.flags&flagEndHeaders == 0
	case frameResetStream:
		c.end(f.stream)
		c.reset()
	case frameData:
		if f.flags&flagEndStream != 0 && f.length == 0 {
			c.end(f.stream)
		}
	}
}

// reset counts a stream that the caller has reset.
func (c *http2) reset() {
	now := time.Now()
	c.resets = min(resetBurst, c.resets+resetRate*now.Sub(c.counted).Seconds())
	c.counted = now
	if c.resets--; c.resets < 0 {
		c.failed = errResets
	}
	if c.resets < resetBurst-resetFree {
		c.excess++
	}
}

// data handles a piece of a DATA frame, without padding.
func (c *http2) data(f frame, piece []byte) {
	r := c.streams[f.stream]
	if r == nil {
		return // the server has ended the stream, and the caller does not know this yet
	}
	for len(piece) > 0 {
		if c.guard.limits.OneMessage && r.whole {
			c.failed = errSecondData
			return
		}
		if !r.begun {
			n := copy(r.prefix[r.have:], piece)
			r.have += n
			r.bytes += int64(n)
			piece = piece[n:]
			if r.have < messagePrefix {
				break
			}
			r.begun, r.left = true, int64(binary.BigEndian.Uint32(r.prefix[1:]))
		}
		n := min(r.left, int64(len(piece)))
		r.left -= n
		r.bytes += n
		piece = piece[n:]
		switch {
		case r.left > 0:
		case c.guard.limits.OneMessage:
			// The server buffers the message until the stream ends, so its memory stays
			// allocated.
			r.whole, r.begun, r.have = true, false, 0
		default:
			r.whole, r.renewed, r.begun, r.have, r.bytes = true, true, false, 0, 0
		}
	}
	c.touch(r)
	if f.last && f.flags&flagEndStream != 0 {
		c.end(f.stream)
	}
}

func (c *http2) touch(r *request) {
	if !r.touched {
		r.touched = true
		c.touched = append(c.touched, r)
	}
}

// settle allocates the memory of incomplete messages and frames. Most requests arrive in one
// piece and need no memory.
func (c *http2) settle() {
	if c.closed {
		return
	}
	for i, r := range c.touched {
		c.touched[i] = nil
		r.touched = false
		if r.ended {
			continue
		}
		if r.renewed {
			r.renewed = false
			r.release()
		}
		if r.bytes > 0 || !r.whole {
			c.hold(r)
		}
	}
	c.touched = c.touched[:0]

	if c.newHead && c.head != nil {
		c.head.End()
		c.head = nil
	}
	c.newHead = false
	if c.block || c.in.unfinished() {
		if c.head == nil {
			c.head = c.guard.budget.Begin(c.abort)
		}
		n := c.in.arrived
		if c.block {
			n *= decodedHeader
		}
		if !c.head.Grow(n) {
			c.failed = cmp.Or(c.failed, errSlow)
		}
	} else if c.head != nil {
		c.head.End()
		c.head = nil
	}
	c.in.arrived = 0
}

func (c *http2) hold(r *request) {
	if r.hold == nil {
		r.hold = c.guard.budget.Begin(c.abort)
	}
	if grown := r.bytes - r.hold.bytes; grown > 0 && !r.hold.Grow(grown) {
		c.failed = cmp.Or(c.failed, errSlow)
	}
}

// abort closes the connection without blocking. Only closing the connection makes the gRPC
// server release the memory of an incomplete request.
func (c *http2) abort() { go c.Close() }

// end removes a stream.
func (c *http2) end(stream uint32) {
	if r := c.streams[stream]; r != nil {
		r.ended = true
		r.release()
		delete(c.streams, stream)
	}
}

func (r *request) release() {
	if r.hold != nil {
		r.hold.End()
		r.hold = nil
	}
}

// frame is the header of a frame.
type frame struct {
	kind, flags byte
	stream      uint32
	length      int
	last        bool // true for the last piece of a DATA frame
}

// frames parses the frames in one direction of a connection, piece by piece.
type frames struct {
	preface int // the number of bytes of the preface that have not arrived
	header  [frameHeader]byte
	have    int // the number of bytes of the header that have arrived
	current frame
	left    int // the number of bytes of the payload that have not arrived
	padding int // the number of padding bytes at the end of the payload
	padded  bool
	// arrived is the number of fed bytes of all frames except DATA frames.
	arrived int64
}

// unfinished reports whether a frame header, or a frame other than DATA, is incomplete.
func (s *frames) unfinished() bool {
	if s.have < frameHeader {
		return s.have > 0
	}
	return s.left > 0 && s.current.kind != frameData
}

// feed calls begin for each frame, and data for each piece of a DATA frame.
func (s *frames) feed(b []byte, begin func(frame), data func(frame, []byte)) {
	if s.preface > 0 {
		n := min(s.preface, len(b))
		s.preface -= n
		b = b[n:]
	}
	for len(b) > 0 {
		if s.have < frameHeader {
			n := copy(s.header[s.have:], b)
			s.have += n
			s.arrived += int64(n)
			b = b[n:]
			if s.have < frameHeader {
				return
			}
			h := s.header
			s.left = int(h[0])<<16 | int(h[1])<<8 | int(h[2])
			s.current = frame{kind: h[3], flags: h[4], stream: binary.BigEndian.Uint32(h[5:]) & (1<<31 - 1), length: s.left}
			s.padding, s.padded = 0, s.current.kind == frameData && s.current.flags&flagPadded != 0
			begin(s.current)
		}
		if s.left > 0 && len(b) > 0 {
			if s.padded {
				s.padded, s.padding = false, int(b[0])
				s.left--
				b = b[1:]
			}
			n := min(s.left, len(b))
			if s.current.kind == frameData {
				content := max(0, min(n, s.left-s.padding))
				s.current.last = s.left-content <= s.padding
				if content > 0 || s.current.last {
					data(s.current, b[:content])
				}
			} else {
				s.arrived += int64(n)
			}
			s.left -= n
			b = b[n:]
		}
		if s.left == 0 {
			s.have = 0
		}
	}
}
