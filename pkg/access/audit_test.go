package access

import (
	"context"
	"strings"
	"testing"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

// A service records the rejected call of an agent that calls it directly. It does not record
// the call of a caller that a gateway has passed on, because the gateway records the call.
func TestServicesRecordDirectCalls(t *testing.T) {
	var lines strings.Builder
	g := &Guard{Listener: Service, Cluster: "default", Audit: &Audit{out: &lines}}
	for _, c := range []struct {
		role   identity.Role
		passed []string
	}{{agent, nil}, {gateway, []string{"berth://default/agent/passed"}}} {
		id := identity.Identity{Cluster: "default", Role: c.role, Name: "direct"}
		caller, err := g.identify(context.Background(), transport.Peer{Encrypted: true, Identity: &id}, "", "", c.passed)
		if err != nil {
			t.Fatal(err)
		}
		g.record(context.Background(), caller, "/m", nil, denied("no"))
	}
	if text := lines.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "berth://default/agent/direct") {
		t.Errorf("audit log: %s", text)
	}
}
