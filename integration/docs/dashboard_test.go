package docs

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestDashboardMetrics checks that the dashboard uses existing metrics: Prometheus returns
// nothing for one that was renamed.
func TestDashboardMetrics(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/berth.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	// The metrics of events and of calls are outside the tables.
	told, prose := figuresTold(t), read(t, "docs/operating.md")
	name := regexp.MustCompile(`\b(?:berth_|rpc_(?:server|client)_)[a-z_]+`)
	shown := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, figure := range name.FindAllString(target.Expr, -1) {
				figure = strings.TrimSuffix(figure, "_bucket")
				shown[figure] = true
				if !told[figure] && !strings.Contains(prose, "`"+figure+"`") {
					t.Errorf("the panel %q shows %s, which docs/operating.md does not tell of", panel.Title, figure)
				}
			}
		}
	}
	if len(shown) < 30 {
		t.Errorf("only %d figures are shown", len(shown))
	}
}
