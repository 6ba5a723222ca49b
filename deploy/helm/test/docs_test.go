package chart

import (
	"maps"
	"os"
	"regexp"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"berth.dev/pkg/identity"
)

// TestDocumentedValues checks that the chart accepts each block of values in the guides,
// together with the values for production if the block is only a part. It checks that other blocks are valid objects of
// Kubernetes, and that their certificates have identities.
func TestDocumentedValues(t *testing.T) {
	var base map[string]any
	for _, guide := range []struct {
		name          string
		sets, objects int
	}{
		{"how-to/deploy-on-kubernetes.md", 5, 1},
		{"how-to/autoscale.md", 1, 4},
		{"tutorial/kubernetes.md", 1, 0},
	} {
		text, err := os.ReadFile("../../../docs/" + guide.name)
		if err != nil {
			t.Fatal(err)
		}
		sets, objects := 0, 0
		for _, block := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(text, -1) {
			for document := range strings.SplitSeq(string(block[1]), "\n---\n") {
				var meta struct {
					metav1.TypeMeta
					Triggers any `json:"triggers"`
					Job      any `json:"job"`
				}
				if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
					t.Fatalf("%s: %v\n%s", guide.name, err, document)
				}
				if strings.HasPrefix(meta.APIVersion, "keda.sh/") || meta.Triggers != nil {
					continue // KEDA's types are not among those of the test
				}
				if meta.Job != nil {
					continue // a test of the documents applies job files
				}
				if meta.Kind != "" {
					checkObject(t, meta.TypeMeta, []byte(document))
					objects++
					continue
				}
				values := map[string]any{}
				if err := yaml.UnmarshalStrict([]byte(document), &values); err != nil {
					t.Fatalf("%s: %v\n%s", guide.name, err, document)
				}
				if base == nil {
					base = values
				}
				if values["insecure"] == nil {
					values = overlaid(base, values)
				}
				decodedValues(t, guide.name, values)
				sets++
			}
		}
		if sets != guide.sets || objects != guide.objects {
			t.Errorf("%s has %d blocks of values and %d objects, want %d and %d", guide.name, sets, objects, guide.sets,
				guide.objects)
		}
	}
}

func checkObject(t *testing.T, meta metav1.TypeMeta, text []byte) {
	t.Helper()
	o := documented(meta.APIVersion, meta.Kind)
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
