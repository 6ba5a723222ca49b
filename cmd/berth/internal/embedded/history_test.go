package embedded

import "testing"

// TestMemberBoundsItsHistory checks that the configuration of a member bounds the history
// of keys and the log in memory.
func TestMemberBoundsItsHistory(t *testing.T) {
	m := Alone()
	m.History, m.RaftEntries = "1m", 1000
	e, err := StartMember(t.Context(), t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	runs := e.server.Server.Cfg
	if runs.AutoCompactionRetention.Minutes() != 1 || runs.SnapshotCount != 1000 || runs.SnapshotCatchUpEntries != 100 {
		t.Errorf("the member keeps %v of history, %d log entries and %d after a snapshot", runs.AutoCompactionRetention,
			runs.SnapshotCount, runs.SnapshotCatchUpEntries)
	}
}
