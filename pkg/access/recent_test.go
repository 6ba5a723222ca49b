package access

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
)

// keeping returns an audit log that keeps entries, and the lines of its file.
func keeping() (*Audit, *strings.Builder) {
	lines := &strings.Builder{}
	a := newAudit(lines, nil, nil)
	a.recent = newRecent(time.Now())
	return a, lines
}

func (a *Audit) add(n int, object string) {
	for i := range n {
		a.write(Entry{Caller: alice, Method: "m", Object: fmt.Sprintf(object, i), Outcome: "OK"}, false)
	}
}

func (a *Audit) page(t *testing.T, token string, size int) AuditPage {
	t.Helper()
	p, err := a.Page(token, size)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func objects(p AuditPage) string {
	var list []string
	for _, e := range p.Entries {
		list = append(list, e.Object)
	}
	return strings.Join(list, " ")
}

// Pages have the newest entries first, and entries that are added between two pages change
// nothing on the pages that follow.
func TestPagesOfTheAuditLog(t *testing.T) {
	a, lines := keeping()
	if p := a.page(t, "", 10); len(p.Entries) != 0 || p.Next != "" || p.Since != a.recent.since {
		t.Errorf("without entries: %+v", p)
	}
	a.add(5, "old-%d")
	first := a.page(t, "", 2)
	a.add(3, "new-%d")
	second := a.page(t, first.Next, 2)
	third := a.page(t, second.Next, 2)
	if got := objects(first) + "," + objects(second) + "," + objects(third); got != "old-4 old-3,old-2 old-1,old-0" ||
		third.Next != "" {
		t.Errorf("pages %s, then %q", got, third.Next)
	}
	if p := a.page(t, "", 8); objects(p) != "new-2 new-1 new-0 old-4 old-3 old-2 old-1 old-0" || p.Next != "" {
		t.Errorf("one page: %s, then %q", objects(p), p.Next)
	}
	// The entries are those of the file.
	var last Entry
	all := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &last); err != nil || last != a.page(t, "", 1).Entries[0] {
		t.Errorf("the last line is %s", all[len(all)-1])
	}
}

func TestInvalidPageTokensOfTheAuditLog(t *testing.T) {
	a, _ := keeping()
	a.add(3, "%d")
	other, _ := keeping()
	other.add(3, "%d")
	for _, token := range []string{"x", "-", "1", a.recent.id, a.recent.id + "-", a.recent.id + "-0", a.recent.id + "-5",
		a.recent.id + "--1", a.recent.id + "-9223372036854775808", other.page(t, "", 1).Next} {
		if _, err := a.Page(token, 1); err == nil || fault.Of(err).Kind != fault.Invalid ||
			fault.Of(err).Fields[0].Name != "pageToken" {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// The memory keeps the newest entries up to the limits of number and size. A page whose
// entries are no longer in memory is empty.
func TestTheMemoryOfTheAuditLogIsBounded(t *testing.T) {
	a, _ := keeping()
	start := a.page(t, "", 1).Since
	a.add(maxRecent, "%d")
	token := a.page(t, "", maxRecent-1).Next
	if p := a.page(t, "", maxRecent); len(p.Entries) != maxRecent || !p.Since.Equal(start) {
		t.Errorf("%d entries since %v, want %v", len(p.Entries), p.Since, start)
	}
	a.add(1, "last-%d")
	p := a.page(t, "", maxRecent)
	if len(p.Entries) != maxRecent || p.Entries[0].Object != "last-0" || p.Entries[maxRecent-1].Object != "1" ||
		!p.Since.Equal(p.Entries[maxRecent-1].Time) || p.Next != "" {
		t.Errorf("%d entries since %v, then %q", len(p.Entries), p.Since, p.Next)
	}
	if p := a.page(t, token, 10); len(p.Entries) != 0 || p.Next != "" {
		t.Errorf("a page before the oldest entry: %+v", p)
	}

	long := Entry{Caller: alice, Method: strings.Repeat("m", 9999), Object: strings.Repeat("o", 9999),
		RequestID: strings.Repeat("r", 9999), Message: strings.Repeat("e", 9999), Outcome: "OK"}
	for range 2 * maxRecent {
		a.write(long, false)
	}
	bytes := 0
	for _, e := range a.page(t, "", maxRecent).Entries {
		bytes += e.size()
	}
	if n := len(a.recent.entries); n >= maxRecent || bytes > maxRecentBytes || bytes < maxRecentBytes-5*maxAuditText ||
		bytes != a.recent.bytes {
		t.Errorf("%d entries with %d bytes, counted %d", n, bytes, a.recent.bytes)
	}
}

// A gateway without a file keeps entries. Other processes without a file have no audit log.
func TestAnAuditLogWithoutAFile(t *testing.T) {
	if a, err := OpenAudit("", false, quiet); a != nil || err != nil {
		t.Errorf("%v, %v", a, err)
	}
	a, err := OpenAudit("", true, quiet)
	if err != nil {
		t.Fatal(err)
	}
	a.Rejected("--listen", "10.0.0.66:1", "plain text")
	if p := a.page(t, "", 1); len(p.Entries) != 1 || p.Entries[0].Outcome != "TLS_REJECTED" {
		t.Errorf("%+v", p)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
