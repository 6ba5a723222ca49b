package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// backoff is the pause before the next attempt. It doubles from first to most. Jitter
// takes off up to half of it, so that many clients do not stay in step.
type backoff struct {
	first, most time.Duration
}

// defaultBackoff is short, since a failover takes some milliseconds, and gateways shed
// load on their own.
var defaultBackoff = backoff{first: 50 * time.Millisecond, most: 2 * time.Second}

func (b backoff) pause(attempt int) time.Duration {
	d := b.most
	if attempt < 16 {
		d = min(b.first<<attempt, b.most)
	}
	return d - rand.N(d/2+1) //nolint:gosec // a pause is not a secret
}

// wait pauses before the next attempt and reports whether there is one.
func (c *Client) wait(ctx context.Context, attempt int) bool {
	timer := time.NewTimer(c.backoff.pause(attempt))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-c.closed:
	}
	return false
}

// silent matches gRPC's error for an address that accepts a connection and sends
// nothing until gRPC closes it.
var silent = regexp.MustCompile(`connection error: desc = "error reading server preface: read tcp \S+->(\S+): use of closed network connection"`)

// unconnected is gRPC's error for a call whose deadline passes while it connects.
const unconnected = "context deadline exceeded while waiting for connections to become ready"

// faultOf returns the fault in the error of a call.
func faultOf(err error) *fault.Error {
	f := rpc.FromStatus(err)
	if f.Message == unconnected {
		f.Message = "no gateway answered in time"
	}
	f.Message = silent.ReplaceAllString(f.Message, "the gateway at $1 did not answer in time")
	return f
}

// maxRepeat is how long a call is repeated under one request ID. The registry forgets
// the ID KeepEnded after the result of the call has ended, and would take a later copy
// for a new call. A gateway may delay the last copy for as long again.
const maxRepeat = KeepEnded / 2

// invoke makes one call and repeats it while its outcome is open: until its context
// ends, and with a request ID for maxRepeat at most.
func invoke[Q, A any](ctx context.Context, c *Client, call func(context.Context, Q, ...grpc.CallOption) (A, error),
	request Q) (A, error) {
	started := time.Now()
	if q, ok := any(request).(interface{ GetRequestId() string }); ok && q.GetRequestId() != "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, maxRepeat)
		defer cancel()
	}
	var none A
	var last *fault.Error
	for attempt := 0; ; attempt++ {
		answer, err := call(ctx, request)
		if err == nil {
			return answer, nil
		}
		f := faultOf(err)
		if f.Kind != fault.Unavailable || f.Reason == fault.ReasonRegistryNotReady {
			return none, f
		}
		// An attempt that the context cut short says less than the one before.
		cut := ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded
		if last == nil || !cut {
			last = f
		}
		if ctx.Err() == nil {
			c.onRetry(f)
		}
		if !c.wait(ctx, attempt) {
			return none, c.gaveUp(ctx, last, started)
		}
	}
}

// gaveUp returns the error of a call whose outcome is open when its context ends or its
// client is closed.
func (c *Client) gaveUp(ctx context.Context, last *fault.Error, started time.Time) *fault.Error {
	gateways := strings.Join(c.addresses, ", ")
	message := "the client was closed"
	cause := error(last)
	if err := ctx.Err(); err != nil {
		message = fmt.Sprintf("no definite answer from %s within %v", gateways, time.Since(started).Round(time.Millisecond))
		cause = fmt.Errorf("%w: %w", err, last)
	}
	return fault.New(fault.Unavailable, last.Reason, "%s", message).With("gateways", gateways).Because(cause)
}
