package store

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// The number of keys in a page of a range. For each page etcd counts all remaining keys
// and blocks writes during that time, so small pages of a long range are expensive. A
// page with values must fit into memory even if each of its records has tens of
// kilobytes.
const (
	pageWithValues = 1000
	pageOfKeys     = 4000
)

// Range reads every key under prefix, except those under the skipped prefixes, at one
// revision and in order of key. It returns that revision. If a compaction removes the
// revision in the meantime, Range starts again with a new revision.
func Range(ctx context.Context, s Store, prefix string, skip ...string) ([]KV, int64, error) {
	for {
		kvs, revision, err := rangeOnce(ctx, s, prefix, skip)
		if !errors.Is(err, ErrCompacted) {
			return kvs, revision, err
		}
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
	}
}

func rangeOnce(ctx context.Context, s Store, prefix string, skip []string) ([]KV, int64, error) {
	var kvs []KV
	var revision int64
	for _, span := range spans(prefix, skip) {
		at, err := read(ctx, s, PageRequest{From: span[0], To: span[1], Revision: revision},
			func(part []KV) { kvs = append(kvs, part...) })
		if err != nil {
			return nil, 0, err
		}
		revision = at
	}
	return kvs, revision, nil
}

// Keys passes every key under prefix, without its value, to receive, in parts. The parts
// may have different revisions: a key that is created or deleted during the call may or
// may not be in a part.
func Keys(ctx context.Context, s Store, prefix string, receive func([]KV)) error {
	for from := prefix; ; {
		began := from
		_, err := read(ctx, s, PageRequest{From: from, To: prefixEnd(prefix), KeysOnly: true}, func(part []KV) {
			receive(part)
			from = part[len(part)-1].Key + "\x00"
		})
		if !errors.Is(err, ErrCompacted) || from == began {
			return err
		}
	}
}

// read passes the keys of a range at one revision to receive, in parts that are not
// empty. It returns this revision.
func read(ctx context.Context, s Store, req PageRequest, receive func([]KV)) (revision int64, err error) {
	if streamer, ok := s.(Streamer); ok {
		if revision, err = streamer.Stream(ctx, req, receive); !errors.Is(err, ErrNoStream) {
			return revision, err
		}
	}
	req.Limit = pageWithValues
	if req.KeysOnly {
		req.Limit = pageOfKeys
	}
	for {
		page, err := s.Page(ctx, req)
		if err != nil {
			return 0, err
		}
		if len(page.KVs) > 0 {
			receive(page.KVs)
		}
		if !page.More {
			return page.Revision, nil
		}
		req.From, req.Revision = page.Next(), page.Revision
	}
}

// spans returns the intervals [from, to) of a prefix without the skipped prefixes. It
// returns at least one interval, so that the caller always reads a revision.
func spans(prefix string, skip []string) [][2]string {
	skip = slices.Clone(skip)
	slices.Sort(skip)
	var out [][2]string
	from, end := prefix, prefixEnd(prefix)
	for _, s := range skip {
		if !strings.HasPrefix(s, prefix) || s < from {
			continue
		}
		if s > from {
			out = append(out, [2]string{from, s})
		}
		from = prefixEnd(s)
	}
	if from < end || len(out) == 0 {
		out = append(out, [2]string{from, end})
	}
	return out
}

// prefixEnd returns the first key after all keys with the prefix. Berth's keys are
// printable, so the last byte of a prefix can be incremented.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	end[len(end)-1]++
	return string(end)
}

// skipped reports whether a key is under one of the prefixes.
func skipped(key string, skip []string) bool {
	return slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(key, s) })
}
