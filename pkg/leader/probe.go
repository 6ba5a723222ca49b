package leader

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"berth.dev/pkg/store"
)

const (
	dialTimeout = time.Second
	// redialPause is between the two re-dials. A listener that is being replaced must
	// not look dead.
	redialPause = time.Millisecond
	// renewAfter is how long a connection is kept. A server closes an idle connection
	// after two minutes, which looks like its death.
	renewAfter = time.Minute
	// renewRetry is the pause before another attempt to renew a connection.
	renewRetry = 5 * time.Second
)

// Probe is a liveness probe of a leader's process, for a leader whose host is up. It
// keeps a connection to the process's own address. The process is dead if the connection
// ends, and then two re-dials in a row are refused, or another process answers. A timeout
// proves nothing: it may be a frozen process or a network partition.
type Probe struct {
	// Dial connects; net.Dialer by default.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Identify returns the ID and Instance of the candidate at an address. Optional:
	// without it, any process that accepts a connection counts as the leader.
	Identify func(ctx context.Context, address string) (Candidate, error)
}

// WaitDead returns true once the holder's process is known to be dead, and false when
// ctx ends. It cannot detect the death of a process that it never connected to.
func (p *Probe) WaitDead(ctx context.Context, h Holder) bool {
	ended := false // the other side has closed the last connection
	for attempt := 1; ctx.Err() == nil; attempt++ {
		if conn := p.connect(ctx, h); conn != nil {
			attempt = 0
			ended = p.waitClosed(ctx, h, conn)
		}
		if ended && p.dead(ctx, h) {
			return true
		}
		if store.Sleep(ctx, store.Backoff(attempt+1)) != nil {
			break
		}
	}
	return false
}

// connect returns a connection to the holder, and nil if another process or none answers.
func (p *Probe) connect(ctx context.Context, h Holder) net.Conn {
	conn, err := p.dial(ctx, h.Address)
	if err != nil {
		return nil
	}
	if p.identify(ctx, h) != isHolder {
		conn.Close()
		return nil
	}
	return conn
}

// waitClosed waits for the end of the connection, and reports whether the other side has
// closed it; a timeout is no such end. It renews the connection, and closes the former
// one only then, so that there is always a connection.
func (p *Probe) waitClosed(ctx context.Context, h Holder, conn net.Conn) bool {
	for within := renewAfter; ; {
		ended, err := readToEnd(ctx, conn, within)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			conn.Close()
			return ended
		}
		if next := p.connect(ctx, h); next != nil {
			conn.Close()
			conn, within = next, renewAfter
		} else {
			within = renewRetry
		}
	}
}

func (p *Probe) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if p.Dial != nil {
		return p.Dial(ctx, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// identity is which process answers at the holder's address.
type identity uint8

const (
	unknown identity = iota
	isHolder
	isAnother
)

func (p *Probe) identify(ctx context.Context, h Holder) identity {
	if p.Identify == nil {
		return isHolder
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	answered, err := p.Identify(ctx, h.Address)
	switch {
	case err != nil:
		return unknown
	case h.is(answered):
		return isHolder
	default:
		return isAnother
	}
}

// readToEnd reads until the connection ends, and reports whether the other side has
// closed it: with EOF or a reset, and not by a timeout. It ignores the data.
func readToEnd(ctx context.Context, conn net.Conn, within time.Duration) (ended bool, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, conn)
	return ctx.Err() == nil && (err == nil || errors.Is(err, syscall.ECONNRESET)), err
}

// dead dials until two attempts in a row are refused or another process answers, and
// then returns true; if the holder itself answers, it returns false. A process that is
// exiting may accept for a moment after its connections have ended, so any other result
// only leads to another attempt.
func (p *Probe) dead(ctx context.Context, h Holder) bool {
	for refused, redial := 0, 1; ; redial++ {
		conn, err := p.dial(ctx, h.Address)
		switch {
		case err == nil:
			conn.Close()
			refused = 0
			switch p.identify(ctx, h) {
			case isHolder:
				return false
			case isAnother:
				return true
			}
		case errors.Is(err, syscall.ECONNREFUSED):
			if refused++; refused == 2 {
				return true
			}
			if store.Sleep(ctx, redialPause) != nil {
				return false
			}
			continue
		default:
			refused = 0
		}
		if store.Sleep(ctx, store.Backoff(redial)) != nil {
			return false
		}
	}
}
