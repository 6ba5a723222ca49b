package docs

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// TestDashboardShowsExistingMetrics checks the expressions of the dashboard. If a metric
// was renamed, Prometheus would return no data and no error.
func TestDashboardShowsExistingMetrics(t *testing.T) {
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/berth.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	// The metrics of events and calls are not in the tables of the document.
	listed, prose := listedMetrics(t), read(t, "docs/reference/metrics.md")
	name := regexp.MustCompile(`\b(?:berth_|rpc_(?:server|client)_)[a-z_]+`)
	shown := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			for _, metric := range name.FindAllString(target.Expr, -1) {
				metric = strings.TrimSuffix(metric, "_bucket")
				shown[metric] = true
				if !listed[metric] && !strings.Contains(prose, "`"+metric+"`") {
					t.Errorf("panel %q shows %s, which docs/reference/metrics.md does not list", panel.Title, metric)
				}
			}
		}
	}
	if len(shown) < 30 {
		t.Errorf("the dashboard shows only %d metrics", len(shown))
	}
}
