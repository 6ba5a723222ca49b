package wiring

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Condition of a link. The zero value is a link in order.
type Condition struct {
	// There and Back say that nothing gets through in that direction: from who
	// connects to who listens, and from there. What is sent waits, as it does in
	// TCP, and so does the end of a connection: silence is all there is to see.
	There, Back bool
	// Delay of every piece of data.
	Delay time.Duration
	// Loss is how likely a piece of data is to break its connection instead.
	Loss float64
}

// Links are the proxies between the processes.
type Links struct {
	mu    sync.Mutex
	links map[[2]string]*link
	done  sync.WaitGroup
}

// NewLinks makes links of which there are none yet.
func NewLinks() *Links { return &Links{links: map[[2]string]*link{}} }

// Via is where one process reaches the address that another listens on. It is
// the Via of a fleet.
func (l *Links) Via(from, to, address string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := [2]string{from, to}
	if known := l.links[name]; known != nil {
		return known.listener.Addr().String(), nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	made := &link{target: address, listener: listener, changed: make(chan struct{}), closed: make(chan struct{})}
	l.links[name] = made
	l.done.Go(made.serve)
	return listener.Addr().String(), nil
}

// Set puts the links that are chosen into a condition, and answers how many.
func (l *Links) Set(chosen func(from, to string) bool, c Condition) int {
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

// Unplug cuts all links of a process, or puts them back in order; false if it has
// none.
func (l *Links) Unplug(name string, unplugged bool) bool {
	return l.Set(func(from, to string) bool { return from == name || to == name }, Condition{There: unplugged, Back: unplugged}) > 0
}

// Close ends all links and every connection on them.
func (l *Links) Close() {
	l.mu.Lock()
	for _, link := range l.links {
		close(link.closed)
		link.listener.Close() // no error of it matters any more
	}
	l.mu.Unlock()
	l.done.Wait()
}

// link is one process's way to an address.
type link struct {
	target   string
	listener net.Listener
	closed   chan struct{}

	mu        sync.Mutex
	condition Condition
	changed   chan struct{} // closed and replaced when the condition changes
}

func (l *link) set(c Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = c
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) now() (Condition, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.condition, l.changed
}

func (l *link) serve() {
	var connections sync.WaitGroup
	defer connections.Wait()
	for {
		c, err := l.listener.Accept()
		if err != nil {
			return // it was closed
		}
		connections.Go(func() { l.carry(c.(*net.TCPConn)) })
	}
}

// carry joins a connection to one of its own to the target, for as long as both
// last.
func (l *link) carry(from *net.TCPConn) {
	defer from.Close()
	if !l.pass(func(c Condition) bool { return c.There }) {
		return
	}
	c, err := net.DialTimeout("tcp", l.target, time.Second)
	if err != nil {
		reset(from) // as near to a refusal as there is once it was accepted
		return
	}
	to := c.(*net.TCPConn)
	defer to.Close()
	ended := make(chan struct{})
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(to, from, func(c Condition) bool { return c.There }) })
	pumps.Go(func() { l.pump(from, to, func(c Condition) bool { return c.Back }) })
	go func() { pumps.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-l.closed:
		reset(from)
		reset(to)
		<-ended
	}
}

// pump copies one direction until it ends.
func (l *link) pump(to, from *net.TCPConn, cut func(Condition) bool) {
	piece := make([]byte, 16<<10)
	for {
		n, err := from.Read(piece)
		if !l.pass(cut) {
			return
		}
		condition, _ := l.now()
		if condition.Delay > 0 {
			select {
			case <-time.After(condition.Delay):
			case <-l.closed:
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
			to.CloseWrite() // an error says that it is closed already
			return
		default:
			reset(to)
			return
		}
	}
}

// pass waits until a direction is open; false says that the link was closed.
func (l *link) pass(cut func(Condition) bool) bool {
	for {
		condition, changed := l.now()
		if !cut(condition) {
			return true
		}
		select {
		case <-changed:
		case <-l.closed:
			return false
		}
	}
}

// reset ends a connection so that the other end sees an error.
func reset(c *net.TCPConn) {
	c.SetLinger(0) // an error says that it has ended
	c.Close()
}
