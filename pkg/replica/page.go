package replica

import (
	"google.golang.org/protobuf/proto"

	"berth.dev/api/fault"
)

// The sizes of pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
	// PageBytes is how many bytes the items of a page take at most, unless a single
	// item takes more: a page is one message.
	PageBytes = 8 << 20
)

// Page converts the items of a page, the first always and the others as long as they
// fit into so many bytes together.
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

// PageSize checks the size of a page that was asked for; 0 means the default.
func PageSize(asked int32) (int, error) {
	switch {
	case asked == 0:
		return DefaultPage, nil
	case asked < 0 || asked > MaxPage:
		return 0, fault.BadField(fault.ReasonInvalid, "pageSize", "is %d, and has to be between 1 and %d", asked, MaxPage)
	}
	return int(asked), nil
}
