package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var _ Streamer = (*Etcd)(nil)

// Stream implements Streamer. The whole stream has no time limit, but if no part arrives
// within DefaultTimeout, Stream returns an error. The next attempt then uses another
// member than the hanging one.
func (e *Etcd) Stream(ctx context.Context, req PageRequest, receive func([]KV)) (int64, error) {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	silent := time.AfterFunc(DefaultTimeout, func() { cancel(context.DeadlineExceeded) })
	defer silent.Stop()
	parts, err := e.client.GetStream(ctx, req.From, rangeOptions(req)...)
	if err != nil {
		return 0, e.streamFailed(ctx, err)
	}
	defer func() { // the client's goroutine ends once everything is read
		cancel(nil)
		for range parts {
		}
	}()
	revision, whole := req.Revision, false
	for part := range parts {
		if err := part.Err(); err != nil {
			return 0, e.streamFailed(ctx, err)
		}
		silent.Reset(DefaultTimeout)
		if len(part.Kvs) > 0 {
			receive(allFromEtcd(part.Kvs))
		}
		if header := part.Header; header != nil { // only the last part has one
			if whole = true; revision == 0 {
				revision = header.Revision
			}
		}
	}
	if !whole {
		return 0, ambiguous(io.ErrUnexpectedEOF)
	}
	return revision, nil
}

// streamFailed is like failed, but for streams. If etcd does not support streams, it
// returns ErrNoStream.
func (e *Etcd) streamFailed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		err = cause // the client knows only that the stream was cancelled
	}
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	return e.failed(err)
}
