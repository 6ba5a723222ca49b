package chart

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestAlerts checks that the PrometheusRule has the alerts of deploy/prometheus, with links
// to the runbooks of the values.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../../prometheus/berth.rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var want ruleFile
	moved := strings.ReplaceAll(string(text), "https://berth.dev/docs/how-to/runbooks", "https://wiki.example.com/berth")
	if err := yaml.UnmarshalStrict([]byte(moved), &want); err != nil || moved == string(text) {
		t.Fatal(err)
	}
	rule := get[*prometheusRule](t, decoded(t, "testdata/monitoring.yaml"), "berth")
	if !reflect.DeepEqual(rule.Spec, want) || len(want.Groups) == 0 {
		t.Errorf("the rules are %+v\nwant %+v", rule.Spec, want)
	}
	if rule.Labels["release"] != "prometheus" {
		t.Errorf("Prometheus does not select the rules by %v", rule.Labels)
	}
}

// TestDashboard checks that the ConfigMap has the dashboard of deploy/grafana, and the label
// by which Grafana finds it.
func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("../../grafana/berth.json")
	if err != nil {
		t.Fatal(err)
	}
	config := get[*corev1.ConfigMap](t, decoded(t, "testdata/monitoring.yaml"), "berth-dashboard")
	var got, want any
	if err := json.Unmarshal([]byte(config.Data["berth.json"]), &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Error("the dashboard differs from deploy/grafana/berth.json")
	}
	if config.Labels["grafana_dashboard"] != "1" || config.Labels["dashboards"] != "yes" ||
		config.Annotations["grafana_folder"] != "Berth" {
		t.Errorf("Grafana finds the dashboard by %v and %v", config.Labels, config.Annotations)
	}
}
