package access

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

// A service records the rejected call of an agent that calls it directly. It does not record
// the call of a caller that a gateway has passed on, because the gateway records the call.
func TestServicesRecordDirectCalls(t *testing.T) {
	var lines strings.Builder
	g := &Guard{Listener: Service, Cluster: "default", Audit: newAudit(&lines, nil, nil)}
	for _, c := range []struct {
		role   identity.Role
		passed []string
	}{{agent, nil}, {gateway, []string{"berth://default/agent/passed"}}} {
		id := identity.Identity{Cluster: "default", Role: c.role, Name: "direct"}
		caller, err := g.identify(context.Background(), transport.Peer{Encrypted: true, Identity: &id}, "", "", c.passed)
		if err != nil {
			t.Fatal(err)
		}
		g.record(context.Background(), caller, "/m", subject{}, denied("no"))
	}
	if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "berth://default/agent/direct") {
		t.Errorf("audit log: %s", text)
	}
}

// Strangers cannot fill an audit log with rejections: the log has lines up to the limit, and a
// later line says how many were skipped. Rejections of identified callers and changes still
// have lines.
func TestStrangersCannotFillTheAuditLog(t *testing.T) {
	var lines strings.Builder
	a := newAudit(&lines, nil, nil)
	const flood = 3 * auditBurst
	for i := range flood {
		a.Rejected("--listen", fmt.Sprint("peer ", i), "plain text")
	}
	written := strings.Count(lines.String(), "\n")
	if written < auditBurst || written >= flood {
		t.Fatalf("%d lines for %d rejections", written, flood)
	}
	lines.Reset()
	a.write(Entry{Caller: "berth://default/viewer/eve", Outcome: "PermissionDenied"}, true)
	a.write(Entry{Caller: "berth://default/operator/alice", Outcome: "OK"}, false)
	a.strangers.limiter.SetBurst(2 * auditBurst)
	a.strangers.limiter.SetLimit(1e9)
	for a.strangers.limiter.Tokens() < 1 { // the time since the last line refills the bucket
	}
	a.Rejected("--listen", "last", "plain text")
	var last Entry
	all := strings.Split(strings.TrimSpace(lines.String()), "\n")
	if err := json.Unmarshal([]byte(all[len(all)-1]), &last); err != nil || len(all) != 3 ||
		last.Skipped != int64(flood-written) {
		t.Errorf("audit log, want %d skipped: %s", flood-written, lines.String())
	}
}
