package agent

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// At any time of day, the next heartbeat is sent within the interval and not much earlier.
// The heartbeats of different hosts are sent at the same instants.
func TestHeartbeatDelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "now"))
		every := time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "every"))
		after := heartbeatDelay(now, every)
		if after > every || after < every-every/10-every/50-1 {
			t.Fatalf("the next of the beats each %v is sent after %v", every, after)
		}
		if instants := int64(every / 50); instants > 0 && now.Add(after).UnixNano()%instants != 0 {
			t.Fatalf("sent %v after an instant", time.Duration(now.Add(after).UnixNano()%instants))
		}
	})
}
