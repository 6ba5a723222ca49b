package replica

import "berth.dev/pkg/fault"

// The sizes of pages.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

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
