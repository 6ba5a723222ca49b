// Package proxy cuts, delays and refuses the connections between the processes of a fleet
// for tests. A cut link is silent, like a broken cable: no connection ends, and the data in
// transit arrives once the link works again.
package proxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/pkg/process/port"
)

// Links are the proxies between processes. A cut link is silent, like a broken cable: no
// connection ends, and the data in transit arrives once the link works again.
type Links struct {
	host  string
	mu    sync.Mutex
	links map[[2]string]*link
	done  sync.WaitGroup
}

// New returns an empty set of links on loopback.
func New() *Links { return NewOn("127.0.0.1") }

// NewOn returns an empty set of links on another address of this machine.
func NewOn(host string) *Links { return &Links{host: host, links: map[[2]string]*link{}} }

// Via starts the proxy between two processes, if necessary, and returns the address of
// the proxy. Use it as the Via of a fleet's configuration.
func (l *Links) Via(from, to, address string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := [2]string{from, to}
	if known := l.links[name]; known != nil {
		return known.held.Address(), nil
	}
	// The port stays reserved, so that the proxy can listen on it again after Refused.
	held, err := port.Hold(l.host)
	if err != nil {
		return "", err
	}
	made := &link{target: address, held: held, done: &l.done, changed: make(chan struct{})}
	if err := made.listen(); err != nil {
		held.Release()
		return "", err
	}
	l.links[name] = made
	return held.Address(), nil
}

// Set changes the condition of the chosen links and returns their number.
func (l *Links) Set(chosen func(from, to string) bool, c wiring.Condition) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for name, link := range l.links {
		if chosen(name[0], name[1]) {
			link.set(c)
			n++
		}
	}
	return n
}

// Unplug cuts or restores all links of a process. It returns false if there are none.
func (l *Links) Unplug(name string, unplugged bool) bool {
	return l.Set(func(from, to string) bool { return from == name || to == name },
		wiring.Condition{There: unplugged, Back: unplugged}) > 0
}

// Close ends all links and every connection on them.
func (l *Links) Close() {
	l.mu.Lock()
	for _, link := range l.links {
		link.set(wiring.Condition{Refused: true})
		link.held.Release()
	}
	clear(l.links)
	l.mu.Unlock()
	l.done.Wait()
}

// link is the proxy from one process to an address.
type link struct {
	target string
	held   *port.Held
	done   *sync.WaitGroup

	mu        sync.Mutex
	condition wiring.Condition
	changed   chan struct{} // closed and replaced when the condition changes
	listener  net.Listener  // nil while connections are refused
}

// listen starts to serve connections.
func (l *link) listen() error {
	listener, err := net.Listen("tcp", l.held.Address())
	if err != nil {
		return err
	}
	l.listener = listener
	l.done.Go(func() { l.serve(listener) })
	return nil
}

func (l *link) set(c wiring.Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = c
	close(l.changed)
	l.changed = make(chan struct{})
	switch {
	case c.Refused && l.listener != nil:
		l.listener.Close() // an error does not matter
		l.listener = nil
	case !c.Refused && l.listener == nil:
		if err := l.listen(); err != nil {
			panic(err) // the port is reserved
		}
	}
}

func (l *link) now() (wiring.Condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.condition, l.changed
}

func (l *link) serve(listener net.Listener) {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		c, err := listener.Accept()
		if err != nil {
			return // the listener was closed
		}
		connections.Go(func() { l.carry(c.(*net.TCPConn)) })
	}
}

// carry connects to the target and copies both directions until they end.
func (l *link) carry(from *net.TCPConn) {
	defer from.Close()
	if !l.pass(func(c wiring.Condition) bool { return c.There }) {
		reset(from)
		return
	}
	c, err := net.DialTimeout("tcp", l.target, time.Second)
	if err != nil {
		reset(from) // the connection has already been accepted, so it cannot be refused
		return
	}
	to := c.(*net.TCPConn)
	defer to.Close()
	ended := make(chan struct{})
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(to, from, func(c wiring.Condition) bool { return c.There }) })
	pumps.Go(func() { l.pump(from, to, func(c wiring.Condition) bool { return c.Back }) })
	go func() { pumps.Wait(); close(ended) }()
	for {
		condition, changed := l.now()
		if condition.Refused {
			reset(from)
			reset(to)
			<-ended
			return
		}
		select {
		case <-ended:
			return
		case <-changed:
		}
	}
}

// pump copies one direction until it ends.
func (l *link) pump(to, from *net.TCPConn, cut func(wiring.Condition) bool) {
	piece := make([]byte, 16<<10)
	for {
		n, err := from.Read(piece)
		if !l.pass(cut) {
			return
		}
		condition, changed := l.now()
		if condition.Delay > 0 {
			select {
			case <-time.After(condition.Delay):
			case <-changed:
			}
			if !l.pass(cut) {
				return
			}
		}
		if condition.Loss > 0 && rand.Float64() < condition.Loss {
			reset(from)
			reset(to)
			return
		}
		if _, writeErr := to.Write(piece[:n]); writeErr != nil {
			reset(from)
			return
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			to.CloseWrite() //nolint:errcheck // an error means that the connection is already closed
			return
		default:
			reset(to)
			return
		}
	}
}

// pass waits until a direction is open. It returns false if connections are refused.
func (l *link) pass(cut func(wiring.Condition) bool) bool {
	for {
		condition, changed := l.now()
		switch {
		case condition.Refused:
			return false
		case !cut(condition):
			return true
		}
		<-changed
	}
}

// reset ends a connection with an error at the other end.
func reset(c *net.TCPConn) {
	c.SetLinger(0) //nolint:errcheck // an error means that the connection has ended
	c.Close()
}
