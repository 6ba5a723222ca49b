package relay

import (
	"testing"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
)

// bare reports whether a request has no report, without decoding the request.
func TestBare(t *testing.T) {
	field := (&controlv1.HeartbeatRequest{}).ProtoReflect().Descriptor().Fields().ByName("report")
	if field.Number() != reportField {
		t.Fatalf("the report is field %d", field.Number())
	}
	for want, m := range map[bool]*controlv1.HeartbeatRequest{
		true:  {Id: "e", Incarnation: 7},
		false: {Id: "e", Incarnation: 7, Report: &controlv1.ExecutorReport{}},
	} {
		frame, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if got := bare(frame); got != want {
			t.Errorf("%v is bare: %v", m, got)
		}
		if !want {
			continue
		}
		if bare(frame[:len(frame)-1]) {
			t.Error("a truncated request is bare")
		}
		if !bare(append(frame, 0x20, 1)) { // the tag of field 4
			t.Error("a request with an unknown field is not bare")
		}
	}
}
