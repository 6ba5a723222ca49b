package chart

import (
	"maps"
	"os"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"berth.dev/pkg/identity"
)

// TestDocumentedValues checks that the chart accepts each block of values in the guides
// together with the values of the first block, that other blocks are valid objects of
// Kubernetes, and that their certificates have identities.
func TestDocumentedValues(t *testing.T) {
	for name, want := range map[string]int{
		"how-to/deploy-on-kubernetes.md": 4,
	} {
		text, err := os.ReadFile("../../../docs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		var base map[string]any
		sets := 0
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(text, -1) {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal(block[1], &meta); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, block[1])
			}
			if meta.Kind != "" {
				checkObject(t, meta, block[1])
				continue
			}
			values := map[string]any{}
			if err := yaml.UnmarshalStrict(block[1], &values); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, block[1])
			}
			if base == nil {
				base = values
			}
			decodedValues(t, name, overlaid(base, values))
			sets++
		}
		if sets != want {
			t.Errorf("%s has %d blocks of values, want %d", name, sets, want)
		}
	}
}

func checkObject(t *testing.T, meta metav1.TypeMeta, text []byte) {
	t.Helper()
	o := object(meta.APIVersion, meta.Kind)
	if o == nil {
		t.Fatalf("%s %s is an unexpected kind", meta.APIVersion, meta.Kind)
	}
	if err := yaml.UnmarshalStrict(text, o); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if c, ok := o.(*certificate); ok {
		if _, err := identity.Parse(c.Spec.URIs[0]); err != nil {
			t.Error(err)
		}
	}
}

// overlaid returns values in which the second file of values takes precedence, as in Helm.
func overlaid(below, above map[string]any) map[string]any {
	all := maps.Clone(below)
	for key, value := range above {
		a, first := all[key].(map[string]any)
		b, second := value.(map[string]any)
		if first && second {
			value = overlaid(a, b)
		}
		all[key] = value
	}
	return all
}
