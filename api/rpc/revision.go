package rpc

import (
	"context"
	"strconv"
	"sync/atomic"

	"google.golang.org/grpc/metadata"
)

// metaRevision is the trailer of a call that has the revision of etcd at which the result of
// the call was durable.
const metaRevision = "berth-revision"

type revisionKey struct{}

// WithRevision returns a context in which SetRevision stores a revision.
func WithRevision(ctx context.Context) context.Context {
	return context.WithValue(ctx, revisionKey{}, &atomic.Int64{})
}

// SetRevision stores the revision of etcd at which the result of a call was durable. Without
// WithRevision it does nothing.
func SetRevision(ctx context.Context, revision int64) {
	if to, ok := ctx.Value(revisionKey{}).(*atomic.Int64); ok {
		to.Store(revision)
	}
}

// RevisionIn returns the stored revision, or 0.
func RevisionIn(ctx context.Context) int64 {
	if from, ok := ctx.Value(revisionKey{}).(*atomic.Int64); ok {
		return from.Load()
	}
	return 0
}

// RevisionTrailer returns the trailer with the stored revision; nil without a revision.
func RevisionTrailer(ctx context.Context) metadata.MD {
	if revision := RevisionIn(ctx); revision > 0 {
		return metadata.Pairs(metaRevision, strconv.FormatInt(revision, 10))
	}
	return nil
}

// TakeRevision stores the revision in the trailer of a call and removes it from the trailer.
func TakeRevision(ctx context.Context, trailer metadata.MD) {
	if values := trailer.Get(metaRevision); len(values) == 1 {
		if revision, err := strconv.ParseInt(values[0], 10, 64); err == nil {
			SetRevision(ctx, revision)
		}
	}
	trailer.Delete(metaRevision)
}
