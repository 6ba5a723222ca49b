package relay

import (
	"testing"

	"google.golang.org/protobuf/proto"

	controlv1 "berth.dev/api/berth/control/v1"
)

// The gateway repeats a frame as a bare heartbeat only if the frame contains no report.
func FuzzBare(f *testing.F) {
	for _, m := range []*controlv1.HeartbeatRequest{{}, {Id: "e", Incarnation: 7},
		{Id: "e", Report: &controlv1.ExecutorReport{}}} {
		frame, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		m := &controlv1.HeartbeatRequest{}
		if bare(frame) && proto.Unmarshal(frame, m) == nil && m.GetReport() != nil {
			t.Fatalf("%x is bare and has a report", frame)
		}
	})
}
