package chart

import (
	"os"
	"regexp"
	"testing"

	"sigs.k8s.io/yaml"

	"berth.dev/pkg/identity"
)

// TestDocumentedValues checks that the chart accepts the values in the guide, and that the
// certificates in the guide have identities.
func TestDocumentedValues(t *testing.T) {
	text, err := os.ReadFile("../../../docs/how-to/deploy-on-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllSubmatch(text, -1)
	values, certificates := map[string]any{}, 0
	for _, block := range blocks {
		var c certificate
		if err := yaml.UnmarshalStrict(block[1], &c); err == nil && c.Kind == "Certificate" {
			if _, err := identity.Parse(c.Spec.URIs[0]); err != nil {
				t.Error(err)
			}
			certificates++
			continue
		}
		// All other blocks are parts of one file.
		if err := yaml.UnmarshalStrict(block[1], &values); err != nil {
			t.Errorf("%v\n%s", err, block[1])
		}
	}
	if certificates == 0 || values["etcd"] == nil || values["agent"] == nil {
		t.Fatalf("only %d certificates and the values %v", certificates, values)
	}
	decodedValues(t, "the guide", values)
}
