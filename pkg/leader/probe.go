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
	// redialPause is the pause between the two redials, so that a process that replaces its
	// listener does not look dead.
	redialPause = time.Millisecond
	// renewAfter is how long the probe uses a connection. A server closes an idle connection
	// after two minutes, which looks like the end of its process.
	renewAfter = time.Minute
	// renewRetry is the pause before another attempt to renew a connection.
	renewRetry = 5 * time.Second
)

// Probe is a liveness probe of a leader's process. It works while the host of the leader
// is up. It keeps a connection to the process's own address. It considers the process
// dead if the connection ends and then two consecutive redials are refused or another
// process answers. It ignores timeouts, because the process may be frozen or the network
// partitioned.
//
// The verdict is strong evidence, not a proof: a live process that has closed its
// listener looks dead too. A mistake is safe and costs only a failover; see the
// package comment.
type Probe struct {
	// Dial connects to an address. The default is net.Dialer.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Identify returns the ID and Instance of the candidate at an address. If Identify is
	// nil, any process that accepts a connection counts as the leader.
	Identify func(ctx context.Context, address string) (Candidate, error)
}

// WaitDead returns true once the probe considers the holder's process dead, and false if
// ctx ends first. It cannot detect the end of a process to which it never connected.
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

// connect returns a connection to the holder, or nil if no process or another process
// answers.
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
// closed it; a timeout does not count. It replaces the connection regularly. It opens the
// new connection before it closes the old one, so that there is always a connection.
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

// identity says which process answers at the holder's address.
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

// readToEnd reads and discards data until the connection ends. It reports whether the
// other side has closed the connection, with EOF or a reset. It returns false after a
// timeout.
func readToEnd(ctx context.Context, conn net.Conn, within time.Duration) (ended bool, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, conn)
	return ctx.Err() == nil && (err == nil || errors.Is(err, syscall.ECONNRESET)), err
}

// dead dials the holder's address repeatedly. It returns true once two consecutive
// attempts are refused or another process answers, and false if the holder answers or ctx
// ends. After any other result it dials again, because an exiting process may accept
// connections for a moment after its old connections have ended.
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
