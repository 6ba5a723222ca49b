package replica

import (
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
)

// The sizes of pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
	// PageBytes is the maximum total size of the items of a page, because one message
	// contains a page. A larger item is the only item of its page.
	PageBytes = 8 << 20
)

// Page converts items to messages until their total size would exceed the given number of
// bytes. It always converts the first item.
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

// PageSize returns the requested size of a page, or the default if the requested size is
// 0. It returns an error for a size out of range.
func PageSize(requested int32) (int, error) {
	switch {
	case requested == 0:
		return DefaultPage, nil
	case requested < 0 || requested > MaxPage:
		return 0, fault.BadField(fault.ReasonInvalid, "pageSize", "must be between 1 and %d, got %d", MaxPage, requested)
	}
	return int(requested), nil
}
