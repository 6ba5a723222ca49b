package cell

import (
	"strings"
	"testing"

	"berth.dev/api/fault"
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
