package model

import "testing"

func TestDialHost(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:7200": "10.0.0.1", "[::1]:7200": "::1", "host-a.example.com:7200": "host-a.example.com", "broken": "broken",
	} {
		if got := (&Executor{Address: address}).DialHost(); got != want {
			t.Errorf("%s: got %q, want %q", address, got, want)
		}
	}
}

// The cursor differs for each difference between two lists.
func TestMembersCursor(t *testing.T) {
	seen := map[string]int{}
	for i, m := range []*Members{
		NewMembers(0, nil, Unplaced{}),
		NewMembers(2, nil, Unplaced{Waiting: Indexes{{0, 1}}}),
		NewMembers(2, nil, Unplaced{Ended: Indexes{{0, 1}}}),
		NewMembers(2, nil, Unplaced{GaveUp: Indexes{{0, 1}}}),
		NewMembers(2, nil, Unplaced{GaveUp: Indexes{{0, 0}}, Ended: Indexes{{1, 1}}}),
		NewMembers(2, nil, Unplaced{Ended: Indexes{{0, 0}}, GaveUp: Indexes{{1, 1}}}),
		NewMembers(1, nil, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{1, 1}, "e", "h"}}, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{1, 2}, "e", "h"}}, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{2, 1}, "e", "h"}}, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{1, 1}, "f", "h"}}, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{1, 1}, "e", "i"}}, Unplaced{}),
		NewMembers(1, []Member{{WorkerID{1, 1}, "e h", ""}}, Unplaced{}),
		NewMembers(2, []Member{{WorkerID{1, 1}, "e", "h"}, {WorkerID{2, 1}, "e", "h"}}, Unplaced{}),
	} {
		if other, same := seen[m.Cursor]; same {
			t.Errorf("lists %d and %d have the cursor %s", other, i, m.Cursor)
		}
		seen[m.Cursor] = i
	}
	// Clients keep cursors across updates of Berth, so the hash is fixed.
	const want = "262b64fdbdec9e9d72412cb51979d0f1"
	if got := NewMembers(1, []Member{{WorkerID{1, 2}, "e", "h"}}, Unplaced{}).Cursor; got != want {
		t.Errorf("cursor %s, want %s", got, want)
	}
}
