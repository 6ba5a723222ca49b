package request

import (
	"testing"
	"time"

	"berth.dev/pkg/model"
)

// An upsert that changes the requested volume is another request: another body, and another
// call.
func TestVolumesOfUpserts(t *testing.T) {
	none, minute := time.Duration(0), time.Minute
	requests := []*model.VolumeRequest{nil, {Resource: "disk"}, {Resource: "ssd"},
		{Resource: "disk", OnLoss: model.OnVolumeLossReplace}, {Resource: "disk", KeepFor: &none},
		{Resource: "disk", KeepFor: &minute}}
	upsert := func(v *model.VolumeRequest) model.Upsert {
		u := good()
		u.RequestID, u.Spec.Volume = "id", v
		return u
	}
	for i, a := range requests {
		for j, b := range requests {
			r, u := &model.Reservation{Spec: upsert(a).Spec}, upsert(b)
			if same := SameBody(&u, r); same != (i == j) {
				t.Errorf("%+v and %+v: same body %v", a, b, same)
			}
			if same := Fingerprint(upsert(a)) == Fingerprint(upsert(b)); same != (i == j) {
				t.Errorf("%+v and %+v: same call %v", a, b, same)
			}
		}
	}
}
