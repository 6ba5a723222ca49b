package store

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// pageSize is how many keys Range reads at a time: the largest records, of some
// tens of kilobytes, then still make an answer that one message holds.
const pageSize = 1000

// keysPage is how many keys without values Keys reads at a time.
const keysPage = 5000

// Range reads every key under prefix, but for those under the skipped prefixes,
// at one revision, in order of key, and answers that revision. When a compaction
// takes the revision away between two pages, it starts again with a new one.
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
		for from := span[0]; ; {
			page, err := s.Page(ctx, PageRequest{From: from, To: span[1], Revision: revision, Limit: pageSize})
			if err != nil {
				return nil, 0, err
			}
			kvs = append(kvs, page.KVs...)
			revision = page.Revision
			if !page.More {
				break
			}
			from = page.Next()
		}
	}
	return kvs, revision, nil
}

// Keys tells of every key under prefix, without its value, a page at a time. The
// pages may be of different revisions: of a key that comes or goes meanwhile
// there is no telling.
func Keys(ctx context.Context, s Store, prefix string, tell func([]KV)) error {
	for from, more := prefix, true; more; {
		page, err := s.Page(ctx, PageRequest{From: from, To: prefixEnd(prefix), Limit: keysPage, KeysOnly: true})
		if err != nil {
			return err
		}
		tell(page.KVs)
		if more = page.More; more {
			from = page.Next()
		}
	}
	return nil
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
