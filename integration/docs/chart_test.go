package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestChartFilesMatch checks that the chart has the current alerts and dashboard. A chart can
// only read files in its own directory, so it has copies.
func TestChartFilesMatch(t *testing.T) {
	for from, name := range map[string]string{
		"deploy/prometheus/berth.rules.yaml": "deploy/helm/berth/files/berth.rules.yaml",
		"deploy/grafana/berth.json":          "deploy/helm/berth/files/berth.json",
	} {
		generated(t, name, read(t, from))
	}
}

// generated checks a file that -rewrite writes.
func generated(t *testing.T, name, text string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if text != read(t, name) {
		t.Errorf("%s is stale: go test ./integration/docs -rewrite", name)
	}
}

const chartHead = `# Values of the chart

` + "`go test ./integration/docs -rewrite`" + ` generates this page from the schema and the defaults of the chart; do not edit it. [Deploy on Kubernetes](../how-to/deploy-on-kubernetes.md) explains the values. Helm rejects unknown names and values of the wrong type.
`

// chartValue is a value in the schema of the chart.
type chartValue struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Enum        []any
	Properties  map[string]chartValue
}

// TestChartValuesMatchSchema checks the page with the values of the chart, and that the
// schema describes each value.
func TestChartValuesMatchSchema(t *testing.T) {
	var schema struct {
		chartValue
		Defs map[string]chartValue `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(read(t, "deploy/helm/berth/values.schema.json")), &schema); err != nil {
		t.Fatal(err)
	}
	var defaults yaml.Node // a node keeps the order
	if err := yaml.Unmarshal([]byte(read(t, "deploy/helm/berth/values.yaml")), &defaults); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(chartHead)
	rows := 0
	const columns = "\n| value | type | default | |\n|---|---|---|---|\n"
	var write func(at string, values *yaml.Node, of chartValue)
	write = func(at string, values *yaml.Node, of chartValue) {
		for i := 0; i < len(values.Content); i += 2 {
			name, value := values.Content[i].Value, values.Content[i+1]
			is := of.Properties[name]
			if is.Description == "" {
				t.Errorf("values.schema.json: %s%s has no description", at, name)
			}
			if is.Properties != nil && name != "options" {
				if at == "" {
					fmt.Fprintf(&page, "\n## %s\n\n%s\n%s", name, is.Description, columns)
				}
				write(at+name+".", value, is)
				continue
			}
			var standard any
			if err := value.Decode(&standard); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(standard)
			if err != nil {
				t.Fatal(err)
			}
			kind := is.Type
			if is.Ref != "" {
				kind = schema.Defs[strings.TrimPrefix(is.Ref, "#/$defs/")].Type
			}
			if is.Enum != nil {
				kind = strings.ReplaceAll(strings.Trim(fmt.Sprintf("%q", is.Enum), "[]"), " ", ", ")
			}
			if types, several := kind.([]any); several {
				kind = strings.Join(strings.Fields(strings.Trim(fmt.Sprint(types), "[]")), ", ")
			}
			rows++
			fmt.Fprintf(&page, "| `%s` | %v | `%s` | %s |\n", at+name, kind, text, is.Description)
		}
	}
	// Values without a group come first.
	all := defaults.Content[0]
	single, groups := &yaml.Node{}, &yaml.Node{}
	for pair := range slices.Chunk(all.Content, 2) {
		to := groups
		if schema.Properties[pair[0].Value].Properties == nil || pair[0].Value == "options" {
			to = single
		}
		to.Content = append(to.Content, pair...)
	}
	page.WriteString("\n## General\n" + columns)
	write("", single, schema.chartValue)
	write("", groups, schema.chartValue)
	if rows < 100 {
		t.Errorf("only %d values", rows)
	}
	generated(t, "docs/reference/chart.md", page.String())
}
