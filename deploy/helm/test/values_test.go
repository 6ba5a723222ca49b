package chart

import "testing"

// values.yaml shows every value that the schema takes, and no other: what is not
// shown there is never found.
func TestEveryValueIsShown(t *testing.T) {
	root := readSchema(t)
	delete(root.Properties, "global") // Helm's own
	compare(t, "", root.Properties, readValues(t, chartDir+"/values.yaml"))
}

func compare(t *testing.T, at string, taken map[string]schema, shown map[string]any) {
	t.Helper()
	for name, value := range shown {
		if _, ok := taken[name]; !ok {
			t.Errorf("%s%s is shown, and the schema does not take it", at, name)
		}
		// Options have their own list, docs/reference/options.md.
		if below, ok := value.(map[string]any); ok && name != "options" && taken[name].Properties != nil {
			compare(t, at+name+".", taken[name].Properties, below)
		}
	}
	for name := range taken {
		if _, ok := shown[name]; !ok {
			t.Errorf("%s%s is taken, and not shown", at, name)
		}
	}
}
