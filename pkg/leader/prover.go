package leader

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"time"

	"berth.dev/pkg/store"
)

const (
	dialTimeout = time.Second
	// redialPause lies between the two re-dials: a listener that is being replaced
	// must not look dead.
	redialPause = time.Millisecond
	// knockFor is how long a knock may take: a refusal comes back at once.
	knockFor = 20 * time.Millisecond
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
// ctx is over. What it was never connected to it cannot prove dead. It calls
// suspect when the connection ended, before it dials again.
func (p *Prover) Prove(ctx context.Context, h Holder, suspect func()) bool {
	for attempt := 1; ctx.Err() == nil; attempt++ {
		conn, err := p.dial(ctx, h.Address)
		if err == nil {
			if p.identify(ctx, h) == isHolder {
				attempt = 0
				if hangUp(ctx, conn) {
					suspect()
					if p.dead(ctx, h) {
						return true
					}
				}
			}
			conn.Close()
		}
		if store.Sleep(ctx, store.Backoff(attempt+1)) != nil {
			break
		}
	}
	return false
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
// reset, not a time-out. What it sends is nobody's business.
func hangUp(ctx context.Context, conn net.Conn) bool {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err := io.Copy(io.Discard, conn)
	return ctx.Err() == nil && (err == nil || errors.Is(err, syscall.ECONNRESET))
}

// dead dials again until what it finds is a proof, or the holder itself: two
// refusals in a row, or another process answering. A process that is dying may
// have ended its connections and still accept for a moment, so anything else is
// only asked again.
func (p *Prover) dead(ctx context.Context, h Holder) bool {
	for refused, redial := 0, 1; ; redial++ {
		err := p.redial(ctx, h.Address)
		switch {
		case err == nil:
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
			if spin(redialPause); ctx.Err() != nil {
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

// redial says how it goes to connect again: by a knock where the address is no name,
// which has to be looked up, and somebody answers at once.
func (p *Prover) redial(ctx context.Context, address string) error {
	if at, err := netip.ParseAddrPort(address); err == nil && p.Dial == nil {
		if err := knock(at, knockFor); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			return err
		}
	}
	conn, err := p.dial(ctx, address)
	if err == nil {
		conn.Close()
	}
	return err
}
