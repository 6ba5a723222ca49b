package replica

import (
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
)

// The sizes of pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
	// PageBytes bounds the items of a page in bytes, as a page is one message. A larger
	// item is a page of its own.
	PageBytes = 8 << 20
)

// Page converts the items of a page: always the first, and the others while their total
// size is at most the given number of bytes.
func Page[T any, M proto.Message](items []T, bytes int, convert func(T) M) []M {
	page := make([]M, 0, len(items))
	for _, item := range items {
		m := convert(item)
		if bytes -= proto.Size(m); bytes < 0 && len(page) > 0 {
			break
		}
		page = append(page, m)
	}
	return page
}

// PageSize checks the requested size of a page; 0 means the default.
func PageSize(requested int32) (int, error) {
	switch {
	case requested == 0:
		return DefaultPage, nil
	case requested < 0 || requested > MaxPage:
		return 0, fault.BadField(fault.ReasonInvalid, "pageSize", "must be between 1 and %d, got %d", MaxPage, requested)
	}
	return int(requested), nil
}
