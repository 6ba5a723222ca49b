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
	// redialPause lies between the two re-dials: a listener that is being replaced
	// must not look dead.
	redialPause = time.Millisecond
	// renewAfter is how long a connection is kept. A server ends one on which nothing
	// is said after two minutes, which looks like its death.
	renewAfter = time.Minute
	// renewAgain is when that is tried again.
	renewAgain = 5 * time.Second
)

// Prover proves that a leader's process is dead while its host lives. It keeps a
// connection to the leader's own address. The end of that, and then two refused
// re-dials in a row or another process answering there, is proof; a time-out never is,
// because a frozen process and a cut network look just like it.
type Prover struct {
	// Dial connects; net.Dialer by default.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Identify asks which candidate answers at an address; its ID and Instance
	// count. Optional: without it whoever accepts counts as the leader.
	Identify func(ctx context.Context, address string) (Candidate, error)
}

// Prove returns true once the holder's process is proven dead, and false when
// ctx is over. What it was never connected to it cannot prove dead.
func (p *Prover) Prove(ctx context.Context, h Holder) bool {
	ended := false // the last connection to it was, by the other side
	for attempt := 1; ctx.Err() == nil; attempt++ {
		if conn := p.connect(ctx, h); conn != nil {
			attempt = 0
			ended = p.outlives(ctx, h, conn)
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

// connect answers a connection to the holder, or nil if somebody else answers, or
// nobody.
func (p *Prover) connect(ctx context.Context, h Holder) net.Conn {
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

// outlives waits until the other side has ended the connection, and says so: a
// time-out is no end. In time it makes another connection, and closes the former only
// then: at no moment is there none.
func (p *Prover) outlives(ctx context.Context, h Holder, conn net.Conn) bool {
	for within := renewAfter; ; {
		ended, err := hangUp(ctx, conn, within)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			conn.Close()
			return ended
		}
		if next := p.connect(ctx, h); next != nil {
			conn.Close()
			conn, within = next, renewAfter
		} else {
			within = renewAgain
		}
	}
}

func (p *Prover) dial(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if p.Dial != nil {
		return p.Dial(ctx, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// verdict is who answers at the holder's address.
type verdict uint8

const (
	unknown verdict = iota
	isHolder
	isAnother
)

func (p *Prover) identify(ctx context.Context, h Holder) verdict {
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

// hangUp waits until the other side ends the connection, and says so: EOF or a
// reset, not a time-out, such as that of the given time. What it sends is nobody's
// business.
func hangUp(ctx context.Context, conn net.Conn, within time.Duration) (ended bool, err error) {
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		return false, err
	}
	_, err = io.Copy(io.Discard, conn)
	return ctx.Err() == nil && (err == nil || errors.Is(err, syscall.ECONNRESET)), err
}

// dead dials again until what it finds is a proof, or the holder itself: two
// refusals in a row, or another process answering. A process that is dying may
// have ended its connections and still accept for a moment, so anything else is
// only asked again.
func (p *Prover) dead(ctx context.Context, h Holder) bool {
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
