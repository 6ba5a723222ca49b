package store

import (
	"context"
	"fmt"
	"testing"
)

// paged is a store of sorted keys that can only return pages.
type paged struct {
	Store
	kvs     []KV
	largest int // the largest number of keys in a page
}

func (p *paged) Page(_ context.Context, req PageRequest) (Page, error) {
	var after []KV
	for i, kv := range p.kvs {
		if kv.Key >= req.From {
			after = p.kvs[i:]
			break
		}
	}
	n := min(req.Limit, len(after))
	p.largest = max(p.largest, n)
	return Page{Revision: 1, KVs: after[:n], More: n < len(after)}, nil
}

// The number of bytes in a page of a range stays limited.
func TestPagesStayBounded(t *testing.T) {
	const few, many, large = 40, 60_000, 4 << 10
	p := &paged{}
	for i := range many {
		p.kvs = append(p.kvs, KV{Key: fmt.Sprintf("p/a/%06d", i), Value: make([]byte, few)})
	}
	for i := range many / 2 {
		p.kvs = append(p.kvs, KV{Key: fmt.Sprintf("p/b/%06d", i), Value: make([]byte, large)})
	}
	kvs, _, err := Range(t.Context(), p, "p/")
	if err != nil || len(kvs) != len(p.kvs) {
		t.Fatalf("%d of %d keys: %v", len(kvs), len(p.kvs), err)
	}
	if p.largest > pageWithValues {
		t.Errorf("a page of %d keys, want at most %d", p.largest, pageWithValues)
	}
}
