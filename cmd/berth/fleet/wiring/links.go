package wiring

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"berth.dev/pkg/process/port"
)

// Condition of a link. The zero value is a working link.
type Condition struct {
	// There cuts the direction from the side that connects to the side that listens, Back
	// the opposite one. Data and the end of a connection wait until the direction is open
	// again.
	There, Back bool
	// Delay of every piece of data.
	Delay time.Duration
	// Loss is the probability that a piece of data resets its connection instead.
	Loss float64
	// Refused refuses connections and resets the existing ones, like a firewall that
	// rejects.
	Refused bool
}

// Links are the proxies between the processes.
type Links struct {
	host  string
	mu    sync.Mutex
	links map[[2]string]*link
	done  sync.WaitGroup
}

// NewLinks returns an empty set of links on loopback.
func NewLinks() *Links { return NewLinksOn("127.0.0.1") }

// NewLinksOn is NewLinks on another address of this machine.
func NewLinksOn(host string) *Links { return &Links{host: host, links: map[[2]string]*link{}} }

// Via returns the address of the proxy between two processes, which it starts. It is the
// Via of a fleet.
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

// Unplug cuts or restores all links of a process. It returns false if there are none.
func (l *Links) Unplug(name string, unplugged bool) bool {
	return l.Set(func(from, to string) bool { return from == name || to == name }, Condition{There: unplugged, Back: unplugged}) > 0
}

// Close ends all links and every connection on them.
func (l *Links) Close() {
	l.mu.Lock()
	for _, link := range l.links {
		link.set(Condition{Refused: true})
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
	condition Condition
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

func (l *link) set(c Condition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.condition = c
	close(l.changed)
	l.changed = make(chan struct{})
	switch {
	case c.Refused && l.listener != nil:
		l.listener.Close() // its error does not matter
		l.listener = nil
	case !c.Refused && l.listener == nil:
		if err := l.listen(); err != nil {
			panic(err) // the port is reserved
		}
	}
}

func (l *link) now() (Condition, <-chan struct{}) {
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
			return // it was closed
		}
		connections.Go(func() { l.carry(c.(*net.TCPConn)) })
	}
}

// carry connects to the target and copies both directions until they end.
func (l *link) carry(from *net.TCPConn) {
	defer from.Close()
	if !l.pass(func(c Condition) bool { return c.There }) {
		reset(from)
		return
	}
	c, err := net.DialTimeout("tcp", l.target, time.Second)
	if err != nil {
		reset(from) // the connection is accepted already and cannot be refused
		return
	}
	to := c.(*net.TCPConn)
	defer to.Close()
	ended := make(chan struct{})
	var pumps sync.WaitGroup
	pumps.Go(func() { l.pump(to, from, func(c Condition) bool { return c.There }) })
	pumps.Go(func() { l.pump(from, to, func(c Condition) bool { return c.Back }) })
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
func (l *link) pump(to, from *net.TCPConn, cut func(Condition) bool) {
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
			to.CloseWrite() //nolint:errcheck // an error says that it is closed already
			return
		default:
			reset(to)
			return
		}
	}
}

// pass waits until a direction is open. It returns false if connections are refused.
func (l *link) pass(cut func(Condition) bool) bool {
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
	c.SetLinger(0) //nolint:errcheck // an error says that it has ended
	c.Close()
}
