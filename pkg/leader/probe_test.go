package leader_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth.dev/pkg/leader"
	"berth.dev/testkit/porttest"
)

// process is a listener that keeps its connections open, like the process of a leader.
type process struct {
	net.Listener
	mu       sync.Mutex
	conns    []net.Conn
	accepted chan struct{}
}

func startProcess(t *testing.T, address string) *process {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Listener: l, accepted: make(chan struct{}, 100)}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			p.conns = append(p.conns, conn)
			p.mu.Unlock()
			p.accepted <- struct{}{}
		}
	})
	t.Cleanup(func() { p.die(); group.Wait() })
	return p
}

// hangUp closes the accepted connections, with a reset if reset is true.
func (p *process) hangUp(reset bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.conns {
		if reset {
			_ = conn.(*net.TCPConn).SetLinger(0)
		}
		conn.Close()
	}
	p.conns = nil
}

// die closes the listener and all connections, as the kernel does for a killed process.
func (p *process) die() {
	p.Listener.Close()
	p.hangUp(false)
}

// accepts waits for the next connection. The test fails if the probe ends first.
func (p *process) accepts(t *testing.T, proven <-chan bool) {
	t.Helper()
	select {
	case <-p.accepted:
	case dead := <-proven:
		t.Fatalf("the probe of a living process ended with %v", dead)
	case <-time.After(time.Minute):
		t.Fatal("no connection")
	}
}

// proof waits for the end of a probe and returns its result.
func proof(t *testing.T, proven <-chan bool) bool {
	t.Helper()
	select {
	case dead := <-proven:
		return dead
	case <-time.After(time.Minute):
		t.Fatal("the probe does not end")
		return false
	}
}

func probe(t *testing.T, ctx context.Context, p *leader.Probe, h leader.Holder) <-chan bool {
	t.Helper()
	proven := make(chan bool, 1)
	go func() { proven <- p.WaitDead(ctx, h) }()
	return proven
}

func holder(address string) leader.Holder {
	return leader.Holder{Candidate: leader.Candidate{ID: "a", Address: address}, Term: 7}
}

func TestKilledProcessIsProvenDead(t *testing.T) {
	for name, reset := range map[string]bool{"EOF": false, "reset": true} {
		t.Run(name, func(t *testing.T) {
			process := startProcess(t, porttest.Hold(t))
			// The listener may accept before the dial returns, and then a reset could arrive before
			// the connection is in use.
			connected := make(chan struct{}, 1)
			p := &leader.Probe{Identify: func(context.Context, string) (leader.Candidate, error) {
				connected <- struct{}{}
				return leader.Candidate{ID: "a"}, nil
			}}
			proven := probe(t, t.Context(), p, holder(process.Addr().String()))
			process.accepts(t, proven)
			<-connected
			process.Listener.Close()
			process.hangUp(reset)
			if !proof(t, proven) {
				t.Error("not proven dead")
			}
		})
	}
}

// If a connection ends but the process accepts the next one, nothing is proven.
func TestClosedConnectionIsNoProof(t *testing.T) {
	process := startProcess(t, porttest.Hold(t))
	proven := probe(t, t.Context(), &leader.Probe{}, holder(process.Addr().String()))
	process.accepts(t, proven)
	for range 5 {
		process.hangUp(false)
		process.accepts(t, proven) // the probe dials again
		process.accepts(t, proven) // the new connection
	}
	select {
	case <-proven:
		t.Fatal("a living process was proven dead")
	default:
	}
	process.die()
	if !proof(t, proven) {
		t.Error("not proven dead")
	}
}

// If another process answers at the leader's address, the leader is dead. This is the case
// after a restart under the same name.
func TestAnotherProcessIsProof(t *testing.T) {
	for name, c := range map[string]struct{ holder, next leader.Candidate }{
		"restarted under its name": {leader.Candidate{ID: "a", Instance: "1"}, leader.Candidate{ID: "a", Instance: "2"}},
		"rolled back":              {leader.Candidate{ID: "a", Instance: "1"}, leader.Candidate{ID: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, porttest.Hold(t))
			answered := succession(c.holder, c.next)
			proven := probe(t, t.Context(), &leader.Probe{Identify: answered.identify}, holderAt(p, c.holder))
			p.accepts(t, proven)
			<-answered.first
			p.hangUp(false)
			if !proof(t, proven) {
				t.Error("not proven dead")
			}
		})
	}
}

// If a connection ends but the same process answers, nothing is proven.
func TestSameProcessIsNoProof(t *testing.T) {
	itself := leader.Candidate{ID: "a", Instance: "1"}
	for name, c := range map[string]struct{ holder, next leader.Candidate }{
		"itself":             {itself, itself},
		"under another name": {itself, leader.Candidate{ID: "b", Instance: "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, porttest.Hold(t))
			answered := succession(c.holder, c.next)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			proven := probe(t, ctx, &leader.Probe{Identify: answered.identify}, holderAt(p, c.holder))
			p.accepts(t, proven)
			<-answered.first
			p.hangUp(false)
			p.accepts(t, proven) // the probe dials again
			p.accepts(t, proven) // the new connection to the holder
			cancel()
			if proof(t, proven) {
				t.Error("proven dead")
			}
		})
	}
}

// successor answers first as the holder, and afterwards as the next candidate.
type successor struct {
	holder, next leader.Candidate
	first        chan struct{} // closed at the first answer
	asked        bool
}

func succession(holder, next leader.Candidate) *successor {
	return &successor{holder: holder, next: next, first: make(chan struct{})}
}

func (s *successor) identify(context.Context, string) (leader.Candidate, error) {
	if s.asked {
		return s.next, nil
	}
	s.asked = true
	close(s.first)
	return s.holder, nil
}

func holderAt(p *process, c leader.Candidate) leader.Holder {
	c.Address = p.Addr().String()
	return leader.Holder{Candidate: c, Term: 7}
}

// scripted returns the given results of dials in order. After the last result, a dial
// blocks until its context ends.
type scripted struct {
	script []func() (net.Conn, error)
	dials  chan int
	n      int
}

func (s *scripted) dial(ctx context.Context, _ string) (net.Conn, error) {
	n := s.n
	s.n++
	s.dials <- n
	if n < len(s.script) {
		return s.script[n]()
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestInconclusiveProbes(t *testing.T) {
	refused := func() (net.Conn, error) { return nil, syscall.ECONNREFUSED }
	timeout := func() (net.Conn, error) { return nil, context.DeadlineExceeded }
	ending := func(err error) func() (net.Conn, error) {
		return func() (net.Conn, error) { return endingConn{err: err}, nil }
	}
	eof, alive := ending(io.EOF), ending(io.EOF)
	for name, script := range map[string][]func() (net.Conn, error){
		"never connected":          {refused, refused, refused},
		"timed out, then refused":  {ending(syscall.ETIMEDOUT), refused, refused},
		"unreachable":              {ending(syscall.EHOSTUNREACH), refused, refused},
		"refused once":             {eof, refused, timeout},
		"refused once, then alive": {eof, refused, alive},
		"stalled":                  {eof, timeout, refused},
		"dial hangs":               {eof},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &scripted{script: script, dials: make(chan int, 100)}
			proven := probe(t, ctx, &leader.Probe{Dial: s.dial}, holder("anywhere"))
			for n := range s.dials {
				if n == len(script) {
					break
				}
			}
			cancel()
			if <-proven {
				t.Error("proven dead")
			}
		})
	}
}

// endingConn is a connection in which every read fails at once.
type endingConn struct {
	net.Conn
	err error
}

func (c endingConn) Read([]byte) (int, error) { return 0, c.err }
func (c endingConn) Close() error             { return nil }

func (endingConn) SetReadDeadline(time.Time) error { return nil }

// A frozen process keeps its connection, so the probe proves nothing, however long the
// probe runs.
func TestFrozenProcessIsNoProof(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if <-probe(t, ctx, &leader.Probe{}, holder(l.Addr().String())) {
		t.Error("proven dead")
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("gave up early")
	}
}

// A server closes an idle connection after two minutes. The probe opens another connection
// before that, so it can detect a dead process at any time.
func TestAConnectionIsRenewedBeforeItIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var open []net.Conn
		died, dials, alive := false, 0, 0
		p := &leader.Probe{Dial: func(context.Context, string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if dials++; died {
				return nil, syscall.ECONNREFUSED
			}
			if dials > 1 && alive == 0 {
				t.Error("no connection was open during a dial")
			}
			alive++
			ours, theirs := net.Pipe()
			open = append(open, theirs)
			time.AfterFunc(2*time.Minute, func() {
				mu.Lock()
				defer mu.Unlock()
				alive--
				theirs.Close()
			})
			return ours, nil
		}}
		proven := make(chan bool, 1)
		go func() { proven <- p.WaitDead(t.Context(), holder("anywhere")) }()
		time.Sleep(10*time.Minute + time.Second)
		mu.Lock()
		if dials < 6 || dials > 12 {
			t.Errorf("%d connections in ten minutes", dials)
		}
		died = true
		for _, conn := range open {
			conn.Close()
		}
		mu.Unlock()
		if !<-proven {
			t.Error("not proven dead")
		}
	})
}
