package chaos

import (
	"testing"

	"berth.dev/client"
)

// Every acknowledged version must have an event. A version that a request created must be
// announced as queued and not as requeued.
func TestUnannouncedVersions(t *testing.T) {
	queued, requeued := map[string]bool{"asked": true, "at-the-tail": true}, map[string]bool{"again": true}
	for _, c := range []struct {
		name, uid string
		requeue   bool
		right     bool
	}{
		{"asked for", "asked", false, true},
		{"a requeue without later requests", "again", true, true},
		{"a requeue that was refused, and is queued at the tail", "at-the-tail", true, true},
		{"a requested version that was announced as a requeue", "again", false, false},
		{"never announced", "other", false, false},
		{"a requeue that was never announced", "other", true, false},
	} {
		l := &load{acked: map[string]acked{c.uid: {client.Key{Job: "job"}, c.requeue}}}
		if found := l.unannounced(queued, requeued); (len(found) == 0) != c.right {
			t.Errorf("%s: %q", c.name, found)
		}
	}
}
