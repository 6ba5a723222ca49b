package store

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Pages of a range have firstPage keys at first, and then more and more, until they
// are of about pageBytes, where keys come with values or without: etcd counts all
// keys that are left for each page, however few it asks for, and lets nobody write
// meanwhile. A thousand of the largest records, of some tens of kilobytes, are still
// an answer that one message holds.
const (
	firstPage   = 1000
	largestPage = 4 * firstPage
	pageBytes   = 2 << 20
)

// Range reads every key under prefix, but for those under the skipped prefixes,
// at one revision, in order of key, and answers that revision. When a compaction
// takes the revision away meanwhile, it starts again with a new one.
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
		at, err := read(ctx, s, PageRequest{From: span[0], To: span[1], Revision: revision}, func(part []KV) { kvs = append(kvs, part...) })
		if err != nil {
			return nil, 0, err
		}
		revision = at
	}
	return kvs, revision, nil
}

// Keys tells of every key under prefix, without its value, some at a time. They
// may be of different revisions: of a key that comes or goes meanwhile there is no
// telling.
func Keys(ctx context.Context, s Store, prefix string, tell func([]KV)) error {
	for from := prefix; ; {
		began := from
		_, err := read(ctx, s, PageRequest{From: from, To: prefixEnd(prefix), KeysOnly: true}, func(part []KV) {
			tell(part)
			from = part[len(part)-1].Key + "\x00"
		})
		if !errors.Is(err, ErrCompacted) || from == began {
			return err
		}
	}
}

// read tells of the keys of a range, all of one revision, a part at a time, none of
// which is empty. It answers the revision.
func read(ctx context.Context, s Store, req PageRequest, tell func([]KV)) (revision int64, err error) {
	if streaming, can := s.(Streamer); can {
		if revision, err = streaming.Stream(ctx, req, tell); !errors.Is(err, ErrNoStream) {
			return revision, err
		}
	}
	for req.Limit = firstPage; ; {
		page, err := s.Page(ctx, req)
		if err != nil {
			return 0, err
		}
		if len(page.KVs) > 0 {
			tell(page.KVs)
		}
		if !page.More {
			return page.Revision, nil
		}
		switch bytes := size(page.KVs); {
		case bytes < pageBytes/2:
			req.Limit = min(2*req.Limit, largestPage)
		case bytes > pageBytes:
			req.Limit = firstPage
		}
		req.From, req.Revision = page.Next(), page.Revision
	}
}

// size is about what keys take with their values.
func size(kvs []KV) (bytes int) {
	for _, kv := range kvs {
		bytes += len(kv.Key) + len(kv.Value) + overhead
	}
	return bytes
}

// spans are the intervals [from, to) of a prefix without the skipped prefixes.
// There is always at least one, so that a range always learns its revision.
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

// prefixEnd is the first key after all keys with the prefix. Keys of Berth are
// printable, so a prefix always has a last byte that can be raised.
func prefixEnd(prefix string) string {
	end := []byte(prefix)
	end[len(end)-1]++
	return string(end)
}

// skipped says whether a key is under one of the prefixes.
func skipped(key string, skip []string) bool {
	return slices.ContainsFunc(skip, func(s string) bool { return strings.HasPrefix(key, s) })
}
