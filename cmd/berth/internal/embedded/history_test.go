package embedded

import "testing"

// A member keeps as much of the past as it is given: of the history of keys, and of the
// log in memory.
func TestAMemberKeepsAsMuchOfThePastAsItIsGiven(t *testing.T) {
	m := Alone()
	m.History, m.RaftEntries = "1m", 1000
	e, err := StartMember(t.Context(), t.TempDir(), m)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	runs := e.server.Server.Cfg
	if runs.AutoCompactionRetention.Minutes() != 1 || runs.SnapshotCount != 1000 || runs.SnapshotCatchUpEntries != 100 {
		t.Errorf("it keeps %v of history, %d entries of the log and %d behind a snapshot", runs.AutoCompactionRetention, runs.SnapshotCount, runs.SnapshotCatchUpEntries)
	}
}
