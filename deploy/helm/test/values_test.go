package chart

import "testing"

// TestValuesMatchSchema checks that values.yaml has every value of the schema and no
// other value, because users read only values.yaml.
func TestValuesMatchSchema(t *testing.T) {
	root := readSchema(t)
	delete(root.Properties, "global") // Helm itself defines this value
	compare(t, "", root.Properties, readValues(t, chartDir+"/values.yaml"))
}

func compare(t *testing.T, at string, taken map[string]schema, shown map[string]any) {
	t.Helper()
	for name, value := range shown {
		if _, ok := taken[name]; !ok {
			t.Errorf("%s%s is not in the schema", at, name)
		}
		// docs/reference/options.md lists the options.
		if below, ok := value.(map[string]any); ok && name != "options" && taken[name].Properties != nil {
			compare(t, at+name+".", taken[name].Properties, below)
		}
	}
	for name := range taken {
		if _, ok := shown[name]; !ok {
			t.Errorf("%s%s is in the schema, but not in values.yaml", at, name)
		}
	}
}
