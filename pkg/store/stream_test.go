package store_test

import (
	"context"
	"slices"
	"testing"

	"berth.dev/pkg/store"
)

// streaming is a store that returns its answers one after the other.
type streaming struct {
	store.Store // nil, because no page is requested
	answers     []streamed
	asked       []store.PageRequest
}

type streamed struct {
	parts    [][]store.KV
	revision int64
	err      error
}

func (s *streaming) Stream(_ context.Context, req store.PageRequest, tell func([]store.KV)) (int64, error) {
	next := s.answers[0]
	s.answers, s.asked = s.answers[1:], append(s.asked, req)
	for _, part := range next.parts {
		tell(part)
	}
	return next.revision, next.err
}

func kvs(keys ...string) (list []store.KV) {
	for _, key := range keys {
		list = append(list, store.KV{Key: key})
	}
	return list
}

func names(list []store.KV) (keys []string) {
	for _, kv := range list {
		keys = append(keys, kv.Key)
	}
	return keys
}

func TestRangeRestartsAfterCompaction(t *testing.T) {
	s := &streaming{answers: []streamed{
		{parts: [][]store.KV{kvs("p/a")}, err: store.ErrCompacted},
		{parts: [][]store.KV{kvs("p/b"), kvs("p/c")}, revision: 7},
		{parts: [][]store.KV{kvs("p/y")}, revision: 7},
	}}
	got, revision, err := store.Range(t.Context(), s, "p/", "p/x/")
	if err != nil || revision != 7 || !slices.Equal(names(got), []string{"p/b", "p/c", "p/y"}) {
		t.Errorf("%v at %d, %v", names(got), revision, err)
	}
	if last := s.asked[2]; last.Revision != 7 || last.From != "p/x0" {
		t.Errorf("request after the skipped keys: %+v", last)
	}
}

func TestKeysContinueAfterCompaction(t *testing.T) {
	s := &streaming{answers: []streamed{
		{parts: [][]store.KV{kvs("p/a", "p/b")}, err: store.ErrCompacted},
		{parts: [][]store.KV{kvs("p/c")}, revision: 9},
	}}
	var got []store.KV
	if err := store.Keys(t.Context(), s, "p/", func(part []store.KV) { got = append(got, part...) }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names(got), []string{"p/a", "p/b", "p/c"}) || s.asked[1].From != "p/b\x00" ||
		s.asked[1].Revision != 0 {
		t.Errorf("got %v with requests %+v", names(got), s.asked)
	}
}

func TestRangeReadsPagesWithoutStreams(t *testing.T) {
	f := store.NewFake(store.FakeConfig{})
	if _, err := f.Txn(t.Context(), store.Txn{Then: []store.Op{store.Put("p/a", []byte("1"))}}); err != nil {
		t.Fatal(err)
	}
	s := &streaming{Store: f, answers: []streamed{{err: store.ErrNoStream}}}
	got, revision, err := store.Range(t.Context(), s, "p/")
	if err != nil || revision == 0 || !slices.Equal(names(got), []string{"p/a"}) {
		t.Errorf("%v at %d, %v", names(got), revision, err)
	}
}
