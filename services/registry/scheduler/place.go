package scheduler

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"berth.dev/pkg/model"
)

// placeParts is the number of parts in the text of a place. If the dispatch of the reservation was
// refused, refusedPart follows.
const (
	placeParts  = 8
	refusedPart = "/refused"
)

// PlaceOf returns a text with the fields of a pending reservation that decide its place in its
// group. See ParsePlace.
func PlaceOf(r *model.Reservation) string {
	order := ""
	if r.Spec.Priority.Order != nil {
		order = strconv.FormatInt(*r.Spec.Priority.Order, 10)
	}
	origin := r.Origin
	if !r.RequeuedFirst() && origin == model.OriginRequeue {
		origin = model.OriginRequested
	}
	text := fmt.Sprintf("%d/%s/%d/%d/%d/%d/%d/%s", origin, order, r.Spec.Priority.Class, r.Spec.Priority.Tier,
		cmp.Or(r.PlaceEpoch, r.Epoch), r.Place, r.FirstIndex(), r.UID)
	if r.RefusedEpoch != 0 {
		text += refusedPart
	}
	return text
}

// ParsePlace returns a reservation that has only the fields in a text of PlaceOf. In its group
// it has the place of the original, even after that was removed: Compare uses no other field.
// ParsePlace reports whether the text is valid.
func ParsePlace(text string) (*model.Reservation, bool) {
	text, refused := strings.CutSuffix(text, refusedPart)
	parts := strings.Split(text, "/")
	if len(parts) != placeParts || parts[placeParts-1] == "" {
		return nil, false
	}
	valid := true
	number := func(part, bits int) int64 {
		n, err := strconv.ParseInt(parts[part], 10, bits)
		valid = valid && err == nil
		return n
	}
	origin, class := number(0, 8), number(2, 8)
	if origin < 0 || class < 0 {
		return nil, false
	}
	r := &model.Reservation{UID: parts[placeParts-1], Origin: model.Origin(origin)} //nolint:gosec // has 7 bits
	r.Spec.Priority.Class = model.Class(class)                                      //nolint:gosec // has 7 bits
	if parts[1] != "" {
		order := number(1, 64)
		r.Spec.Priority.Order = &order
	}
	r.Spec.Priority.Tier = int32(number(3, 32))
	r.Epoch, r.Place = number(4, 64), number(5, 64)
	if refused {
		r.RefusedEpoch = 1 // any that is set
	}
	index := int32(number(6, 32))
	valid = valid && index >= 0
	r.Workers = model.WorkerSetOf([]model.WorkerID{{Index: index}})
	return r, valid
}
