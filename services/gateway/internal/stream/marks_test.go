package stream

import (
	"testing"

	"google.golang.org/protobuf/proto"

	recordv1 "berth.dev/api/berth/record/v1"
	"berth.dev/pkg/keyspace"
	"berth.dev/pkg/store"
)

// Invalid values of segment keys cause no error. If the newest segment cannot be decoded,
// the segment with the highest mark counts as the newest.
func TestInvalidMarks(t *testing.T) {
	keys := keyspace.New("test")
	segment := func(n int64) []byte {
		value, err := proto.Marshal(&recordv1.EventSegment{Number: n})
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	mark := func(n int64, value []byte) store.KV {
		return store.KV{Key: keys.Segment("registry", n), Value: value, Create: n}
	}
	for name, kvs := range map[string][]store.KV{
		"without the newest": {mark(4, segment(4)), mark(5, segment(5))},
		"newest unreadable": {{Key: keys.NewestSegment("registry"), Value: []byte("\xff")}, mark(4, segment(4)),
			mark(5, segment(5))},
		"newest empty": {{Key: keys.NewestSegment("registry")}, mark(4, segment(4)), mark(5, segment(5))},
		"newest negative": {{Key: keys.NewestSegment("registry"), Value: segment(-1)}, mark(4, segment(4)),
			mark(5, segment(5))},
		"newest beyond all segments": {{Key: keys.NewestSegment("registry"), Value: segment(1 << 62)}, mark(4, segment(4)),
			mark(5, segment(5))},
		"marks unreadable": {{Key: keys.NewestSegment("registry"), Value: segment(5)}, mark(4, []byte("\xff")),
			mark(5, nil)},
	} {
		list := segmentsOf(keys, append(kvs, store.KV{Key: keys.Segments() + "x/y/z"}, store.KV{Key: keys.Segments()}), 100)
		if len(list) != 1 || len(list[0].marks) != 2 || list[0].marks[1].number != 5 {
			t.Errorf("%s: %+v", name, list)
		}
	}
}
