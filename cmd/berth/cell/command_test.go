package cell

import (
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/certs"
	"berth.dev/pkg/identity"
)

// A cell calls its parent like an agent, which a proxy cannot serve below a path.
func TestAParentHasNoPath(t *testing.T) {
	err := run(t.Context(), CommandConfig{ID: "a", Parent: []string{"root:8081", "http://proxy/berth"}, Into: "executors",
		LogFormat: "text", LogLevel: "error"})
	if !fault.Is(err, fault.ReasonUnsupported) || !strings.Contains(err.Error(), "--parent") ||
		!strings.Contains(err.Error(), "has a path") {
		t.Errorf("%v", err)
	}
}

// A cell that the child would refuse does not start. The error names the option of the child.
func TestACertificateForTheChildHasExpired(t *testing.T) {
	authority, err := certs.Init(t.TempDir(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	files, err := authority.IssueFrom(identity.Identity{Cluster: "child", Role: identity.Operator, Name: "a"}, nil,
		time.Now().Add(-2*time.Hour), -time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, err = CommandConfig{Gateway: []string{"a:1"}, GatewayCert: files.Cert, GatewayKey: files.Key,
		GatewayCA: files.CA}.dial()
	if err == nil || !strings.Contains(err.Error(), "--gateway-tls-cert: the certificate in "+files.Cert+" expired at ") {
		t.Errorf("%v", err)
	}
}
