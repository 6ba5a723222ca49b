package show

import (
	"fmt"

	berthv1 "berth.dev/api/berth/v1"
)

// Applied is the line that says what an upsert did.
func Applied(r *berthv1.Reservation) string {
	text := fmt.Sprintf("%s %s uid %s", reservationKey(r), r.GetChange(), r.GetUid())
	if r.GetPosition() > 0 {
		return fmt.Sprintf("%s position %d", text, r.GetPosition())
	}
	return text + " " + state(r.GetState())
}

// Cancelled is the line that says what a cancel did.
func Cancelled(what string, count int) string {
	if count == 0 {
		return fmt.Sprintf("%s: nothing to cancel", what)
	}
	return fmt.Sprintf("%s: cancelled %s", what, plural(count, "reservation"))
}
