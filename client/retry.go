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

// backoff configures the pause before the next attempt. The pause doubles each time, from
// first up to most. Random jitter shortens each pause by up to half, so that many clients
// do not stay synchronized.
type backoff struct {
	first, most time.Duration
}

// defaultBackoff has short pauses, because a failover takes only some milliseconds, and
// gateways protect themselves against overload.
var defaultBackoff = backoff{first: 50 * time.Millisecond, most: 2 * time.Second}

func (b backoff) pause(attempt int) time.Duration {
	d := b.most
	if attempt < 16 {
		d = min(b.first<<attempt, b.most)
	}
	return d - rand.N(d/2+1) //nolint:gosec // a pause is not a secret
}

// wait waits before the next attempt. It returns false if there must be no further
// attempt, because ctx has ended or the client was closed.
func (c *Client) wait(ctx context.Context, attempt int) bool {
	return c.rest(ctx, c.backoff.pause(attempt))
}

// rest waits for a time. It returns false if ctx has ended or the client was closed.
func (c *Client) rest(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
	case <-c.closed:
	}
	return false
}

// silent matches gRPC's error for an address that accepts a connection and sends nothing
// until gRPC closes the connection.
var silent = regexp.MustCompile(`connection error: desc = "error reading server preface: read tcp \S+->(\S+): use of closed network connection"`)

// unconnected is gRPC's error for a call whose deadline passes while gRPC is still
// connecting.
const unconnected = "context deadline exceeded while waiting for connections to become ready"

// hungUp matches gRPC's errors for a gateway that closes a connection in plain text before
// it answers: gRPC fails to read the server's first frame, or to write its own first frames.
var hungUp = regexp.MustCompile(
	`^(connection error: desc = "(error reading server preface|transport: failed to write [a-z ]+): )?` +
		`(EOF|(read|write) tcp \S+->\S+: (read|write): (connection reset by peer|broken pipe))"?$`)

// plain has Go's error for an answer in plain text to the begin of a TLS connection.
const plain = "tls: first record does not look like a TLS handshake"

// failedHandshake matches gRPC's error for another failure of a TLS handshake.
var failedHandshake = regexp.MustCompile(
	`connection error: desc = "(?:transport: authentication handshake failed: |error reading server preface: remote error: )(.*)"`)

// faultOf converts the error of a call to a fault.Error, with a message that callers
// understand.
func (c *Client) faultOf(err error) *fault.Error {
	f := rpc.FromStatus(err)
	refused := rpc.RefusedCertificate(f.Message)
	switch {
	case f.Message == unconnected:
		f.Message = "no gateway answered in time"
	case strings.Contains(f.Message, plain):
		f.Message = "the gateway answers in plain text, and the client calls with TLS"
	case refused != "":
		f.Message = "the gateway refused the certificate of the client: " + refused
	case !c.encrypted:
		f.Message = hungUp.ReplaceAllString(f.Message, "the gateway closed the connection: it may require TLS")
	default:
		f.Message = failedHandshake.ReplaceAllString(f.Message, "the TLS handshake with the gateway failed: $1")
	}
	f.Message = silent.ReplaceAllString(f.Message, "the gateway at $1 did not answer in time")
	return f
}

// maxRepeat is how long the client repeats a call with the same request ID. The registry
// deletes the ID KeepEnded after the result of the call has ended, and would then treat a
// repeat as a new call. maxRepeat is only half of KeepEnded, because a gateway may delay
// the last repeat for the same time.
const maxRepeat = KeepEnded / 2

// invoke makes one call and repeats the call while its outcome is unknown, until ctx
// ends. It repeats a call with a request ID for at most maxRepeat.
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
		f := c.faultOf(err)
		if f.Kind != fault.Unavailable || f.Reason == fault.ReasonRegistryNotReady {
			return none, f
		}
		cut := cutShort(ctx, err)
		if last == nil || !cut {
			last = f
		}
		if !cut {
			c.onRetry(f)
		}
		if !c.wait(ctx, attempt) {
			return none, c.gaveUp(ctx, last, started)
		}
	}
}

// cutShort reports whether the end of ctx ended an attempt early. Then the error of the previous
// attempt says more. A gateway ends a call up to 200 ms before its deadline.
func cutShort(ctx context.Context, err error) bool {
	deadline, has := ctx.Deadline()
	code := status.Code(err)
	return ctx.Err() != nil ||
		(code == codes.DeadlineExceeded || code == codes.Canceled) && has && time.Until(deadline) < time.Second
}

// wasReset ends the message of gRPC if the server ended a call at its deadline.
const wasReset = "RST_STREAM with error code: CANCEL"

// gaveUp returns the error of a call whose outcome is unknown when ctx ends or the client
// is closed.
func (c *Client) gaveUp(ctx context.Context, last *fault.Error, started time.Time) *fault.Error {
	gateways := strings.Join(c.addresses, ", ")
	if m := last.Message; ctx.Err() != nil && (m == context.Canceled.Error() || m == context.DeadlineExceeded.Error() ||
		strings.HasSuffix(m, wasReset)) {
		// The end of the context says nothing about the gateway.
		silent := *last
		silent.Message = "the gateway has not answered"
		last = &silent
	}
	message := "the client was closed"
	cause := error(last)
	if err := ctx.Err(); err != nil {
		waited := time.Since(started).Round(time.Millisecond)
		if waited > time.Second {
			waited = waited.Round(100 * time.Millisecond)
		}
		message = fmt.Sprintf("no definite answer from %s within %v", gateways, waited)
		cause = fmt.Errorf("%w: %w", err, last)
	}
	return fault.New(fault.Unavailable, last.Reason, "%s", message).With("gateways", gateways).Because(cause)
}
