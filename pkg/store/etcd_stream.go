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

// Stream implements Streamer. It may take as long as it needs, but at most the default
// deadline between two parts, so that a hanging member is replaced by another.
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

// streamFailed is failed for a stream, which older versions of etcd do not have.
func (e *Etcd) streamFailed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		err = cause // the client knows only that the stream was cancelled
	}
	if status.Code(err) == codes.Unimplemented {
		return fmt.Errorf("%w: %w", ErrNoStream, err)
	}
	return e.failed(err)
}
