// Package flood opens connections, requests and streams that never end until the listener
// closes them, as an attacker does who wants to stop the listener from serving others.
//
// Floods use raw HTTP/1 and HTTP/2, because client libraries respect the listener's limits.
package flood

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// dialers is the number of connections that are opened at the same time.
const dialers = 64

// Flood is a set of connections to one address. It keeps each connection open until the
// listener closes it.
type Flood struct {
	address string
	secured bool

	readers sync.WaitGroup // one for each connection that is open
}

// New returns a flood of the listener at an address. If secured is true, the connections use
// TLS, without a certificate.
func New(address string, secured bool) *Flood { return &Flood{address: address, secured: secured} }

// dial opens a connection.
func (f *Flood) dial() (conn, error) {
	d := net.Dialer{Timeout: 30 * time.Second}
	c, err := d.Dial("tcp", f.address)
	if err != nil {
		return nil, err
	}
	if !f.secured {
		return c.(*net.TCPConn), nil
	}
	// The first write completes the handshake. If the listener rejects it, the write fails.
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true}), nil
}

// conn is a connection whose writing side can be closed.
type conn interface {
	net.Conn
	CloseWrite() error
}

// Wait waits until the listener has closed all connections.
func (f *Flood) Wait() { f.readers.Wait() }

// open opens n connections and calls send for each connection. It is not an error if the
// listener closes a connection, because that is the purpose of the listener's limits.
func (f *Flood) open(n int, send func(i int, c net.Conn)) error {
	numbers := make(chan int)
	errs := make(chan error, dialers)
	var all sync.WaitGroup
	for range dialers {
		all.Go(func() {
			for i := range numbers {
				c, err := f.dial()
				if err != nil {
					select {
					case errs <- fmt.Errorf("connection %d: %w", i, err):
					default:
					}
					continue
				}
				f.readers.Go(func() { read(c) })
				send(i, c)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// read reads the answers of the listener until the listener closes the connection.
func read(c net.Conn) {
	defer c.Close()
	var answer [512]byte
	for {
		if _, err := c.Read(answer[:]); err != nil {
			return
		}
	}
}

func write(c net.Conn, text ...[]byte) {
	for _, t := range text {
		if _, err := c.Write(t); err != nil {
			return // closed by the listener
		}
	}
}

// Idle opens n connections that stay idle. A third of them sends nothing, a third makes
// one HTTP/1 request first, and a third begins HTTP/2 first.
func (f *Flood) Idle(n int) error {
	return f.open(n, func(i int, c net.Conn) {
		switch i % 3 {
		case 1:
			write(c, []byte("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"))
		case 2:
			write(c, preface())
		}
	})
}

// Handshakes opens n connections and sends the begin of a TLS handshake on each. The handshake
// never ends.
func (f *Flood) Handshakes(n int) error {
	return f.open(n, func(_ int, c net.Conn) { write(c, []byte("\x16\x03\x01\x02\x00\x01")) })
}

// Bodies opens n connections and sends a REST call on each. The body of the call is one
// byte shorter than its announced size.
func (f *Flood) Bodies(n, size int) error {
	body := make([]byte, size-1)
	for i := range body {
		body[i] = ' '
	}
	return f.open(n, func(_ int, c net.Conn) {
		write(c, fmt.Appendf(nil, "PUT /v1/jobs/flood/stages/s/reservation HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", size))
		go write(c, body)
	})
}

// Heads opens n connections and sends size bytes of a request head on each. The head
// never ends.
func (f *Flood) Heads(n, size int) error {
	head := []byte("GET / HTTP/1.1\r\nHost: localhost\r\nX-Flood: ")
	for len(head) < size {
		head = append(head, 'x')
	}
	return f.open(n, func(_ int, c net.Conn) { go write(c, head) })
}

// Streams opens n health watches, with each watches on a connection. They wait for
// changes that never happen.
func (f *Flood) Streams(n, each int) error {
	return f.streams(n, each, func(id uint32) []byte {
		return append(headers(id, "/grpc.health.v1.Health/Watch", false),
			data(id, message([]byte("\x0a\x07gateway"), 0), true)...)
	})
}

// Watches opens n health watches whose service names have size bytes. The listener may
// keep the name while the watch is open. At most 60,000 bytes fit into the initial
// flow-control window.
func (f *Flood) Watches(n, each, size int) error {
	return f.streams(n, each, func(id uint32) []byte {
		name := binary.AppendUvarint([]byte{0x0a}, uint64(size))
		text := headers(id, "/grpc.health.v1.Health/Watch", false)
		return append(text, pieces(id, message(append(name, make([]byte, size)...), 0))...)
	})
}

// Headers opens streams with size bytes of decoded headers each. The headers take only a
// few bytes to send, because they refer to a field that the first stream of the
// connection has defined.
func (f *Flood) Headers(n, each, size int) error {
	const value = 3900 // the largest field that fits into a listener's header table
	field := []byte("\x40\x05x-bin\x7f")
	field = append(binary.AppendUvarint(field, value-0x7f), bytes.Repeat([]byte("A"), value)...)
	references := bytes.Repeat([]byte{0x80 | 62}, size/value)
	return f.streams(n, each, func(id uint32) []byte {
		more := references
		if id == 1 {
			more = append(bytes.Clone(field), references[1:]...)
		}
		text := headers(id, "/grpc.health.v1.Health/Watch", false, more...)
		return append(text, data(id, message([]byte("\x0a\x07gateway"), 0), true)...)
	})
}

// Unfinished opens streams with a message of size bytes each, whose last byte is never
// sent. At most 60,000 bytes fit into the initial flow-control window.
func (f *Flood) Unfinished(n, each, size int) error {
	return f.streams(n, each, func(id uint32) []byte {
		text := headers(id, "/berth.v1.Reservations/UpsertReservation", false)
		return append(text, pieces(id, message(make([]byte, size-1), 1))...)
	})
}

// Compressed opens streams with a compressed message each, which has size bytes after
// decompression.
func (f *Flood) Compressed(n, each, size int) error {
	var small bytes.Buffer
	z := gzip.NewWriter(&small)
	if _, err := z.Write(make([]byte, size)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	text := message(small.Bytes(), 0)
	text[0] = 1 // compressed
	return f.streams(n, each, func(id uint32) []byte {
		head := headers(id, "/berth.v1.Reservations/UpsertReservation", false, []byte("\x00\x0dgrpc-encoding\x04gzip")...)
		return append(head, data(id, text, true)...)
	})
}

// Resets begins n streams on a number of connections, resets each stream immediately, and
// waits until the listener has read them. If the listener closes a connection while
// streams are left, Resets opens another connection.
func (f *Flood) Resets(n, conns int) error {
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	errs := make(chan error, conns)
	for range conns {
		all.Go(func() {
			for left.Load() > 0 {
				c, err := f.dial()
				if err != nil {
					errs <- err
					return
				}
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					io.Copy(io.Discard, c) //nolint:errcheck // until it is closed
				}()
				_, err = c.Write(preface())
				for id := uint32(1); err == nil && left.Add(-1) >= 0; id += 2 {
					_, err = c.Write(append(headers(id, "/berth.v1.Reservations/GetReservation", false),
						frame(3, 0, id, []byte{0, 0, 0, 8})...))
				}
				c.CloseWrite() //nolint:errcheck // the listener may have closed it
				<-ended
				c.Close()
			}
		})
	}
	all.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func (f *Flood) streams(n, each int, begin func(id uint32) []byte) error {
	return f.open((n+each-1)/each, func(i int, c net.Conn) {
		text := preface()
		for s := range min(each, n-i*each) {
			text = append(text, begin(uint32(2*s+1))...)
		}
		write(c, text)
	})
}

// preface returns the first bytes of an HTTP/2 client.
func preface() []byte {
	return append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), frame(4, 0, 0, nil)...)
}

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}

// headers returns the HEADERS frame of a call. It appends more, which is already encoded,
// to the header block.
func headers(stream uint32, method string, end bool, more ...byte) []byte {
	var block []byte
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		// Encode a literal field with a new name, without indexing.
		block = append(block, 0, byte(len(h[0])))
		block = append(block, h[0]...)
		block = append(block, byte(len(h[1])))
		block = append(block, h[1]...)
	}
	flags := byte(4) // END_HEADERS
	if end {
		flags |= 1
	}
	return frame(1, flags, stream, append(block, more...))
}

// message returns a gRPC message whose announced length exceeds the text by the missing
// bytes.
func message(text []byte, missing int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text)+missing)), text...)
}

// pieces returns the DATA frames of a message. The last frame does not end the stream.
func pieces(stream uint32, message []byte) []byte {
	var text []byte
	for piece := range slices.Chunk(message, 16_000) {
		text = append(text, data(stream, piece, false)...)
	}
	return text
}

func data(stream uint32, text []byte, end bool) []byte {
	var flags byte
	if end {
		flags = 1
	}
	return frame(0, flags, stream, text)
}
