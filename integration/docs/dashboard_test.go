package docs

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// monitorMetric matches a metric of Berth or etcd in an expression.
var monitorMetric = regexp.MustCompile(`\b(?:berth_|rpc_(?:server|client)_|etcd_)[a-z_]+`)

// dashboardPanel is a panel of the dashboard.
type dashboardPanel struct {
	Type, Title string
	Targets     []struct {
		Expr    string
		Instant bool
	}
	FieldConfig struct{ Defaults struct{ NoValue string } }
}

func dashboard(t *testing.T) []dashboardPanel {
	t.Helper()
	var dashboard struct{ Panels []dashboardPanel }
	if err := json.Unmarshal([]byte(read(t, "deploy/grafana/berth.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	return dashboard.Panels
}

// TestExpressionsHaveListedMetrics checks the expressions of the dashboard and of the
// alerts. If a metric was renamed, Prometheus would return no data and no error.
func TestExpressionsHaveListedMetrics(t *testing.T) {
	expressions := map[string]string{}
	for _, panel := range dashboard(t) {
		for _, target := range panel.Targets {
			expressions["panel "+panel.Title] += target.Expr + "\n"
		}
	}
	var alerts struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy/prometheus/berth.rules.yaml")), &alerts); err != nil {
		t.Fatal(err)
	}
	reference := read(t, "docs/reference/metrics.md")
	for _, rule := range alerts.Groups[0].Rules {
		expressions["alert "+rule.Alert] = rule.Expr
		if !strings.Contains(reference, "| `"+rule.Alert+"` |") {
			t.Errorf("docs/reference/metrics.md does not list the alert %s", rule.Alert)
		}
	}
	// The metrics of calls are not in the tables of the document.
	listed := listedMetrics(t)
	shown := map[string]bool{}
	for where, expression := range expressions {
		for _, metric := range monitorMetric.FindAllString(expression, -1) {
			metric = strings.TrimSuffix(metric, "_bucket")
			shown[metric] = true
			if _, ok := listed[metric]; !ok && !strings.Contains(reference, "`"+metric+"`") && !strings.HasPrefix(metric, "etcd_") {
				t.Errorf("%s uses %s, which docs/reference/metrics.md does not list", where, metric)
			}
		}
	}
	if len(shown) < 40 {
		t.Errorf("the dashboard and the alerts use only %d metrics", len(shown))
	}
}

// TestDashboardShowsMissingLeaders checks that panels are not blank while a service has no
// leader: the leader's metrics are absent then.
func TestDashboardShowsMissingLeaders(t *testing.T) {
	for _, panel := range dashboard(t) {
		for _, target := range panel.Targets {
			// The last value before would hide that the leader is missing.
			shows := panel.FieldConfig.Defaults.NoValue != "" && target.Instant
			if panel.Type == "stat" && !shows && !strings.HasSuffix(target.Expr, "or vector(0)") {
				t.Errorf("panel %q is blank, or shows an old value, without a leader: %s", panel.Title, target.Expr)
			}
		}
		if panel.Type == "timeseries" && panel.FieldConfig.Defaults.NoValue == "" {
			t.Errorf("panel %q has no text for a missing leader", panel.Title)
		}
	}
}
