package chart

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestValuesMatchSchema checks that values.yaml has every value of the schema and no
// other value, because users read only values.yaml.
func TestValuesMatchSchema(t *testing.T) {
	root := readSchema(t)
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

// samples has values for the test of effects, by path or by the definition in the schema, if
// the type of a value does not determine what is valid.
var samples = map[string]any{
	"strings": map[string]any{"sample": "sample"}, "words": []any{"sample"}, "duration": "1000h",
	"tolerations": []any{map[string]any{"key": "sample", "operator": "Exists"}},
	"affinity":    map[string]any{"podAffinity": map[string]any{}}, "hosts": []any{"sample.example.com"},
	"spread":   []any{map[string]any{"maxSkew": 5.0, "topologyKey": "rack", "whenUnsatisfiable": "ScheduleAnyway"}},
	"env":      []any{map[string]any{"name": "SAMPLE", "value": "1"}},
	"envFrom":  []any{map[string]any{"prefix": "SAMPLE_", "secretRef": map[string]any{"name": "sample"}}},
	"volumes":  []any{map[string]any{"name": "sample", "emptyDir": map[string]any{}}},
	"mounts":   []any{map[string]any{"name": "tls", "mountPath": "/sample"}},
	"parents":  []any{map[string]any{"name": "sample"}},
	"peers":    []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]any{"sample": "sample"}}}},
	"behavior": map[string]any{"scaleDown": map[string]any{"stabilizationWindowSeconds": 7.0}},
	"replicas": 7.0, "stopSeconds": 77.0, "pullSecrets": []any{"sample", map[string]any{"name": "sample-7"}},
	"nodePort": 30007.0, "ranges": []any{"10.7.0.0/16"},
	"podSecurityContext":       map[string]any{"supplementalGroups": []any{7.0}},
	"containerSecurityContext": map[string]any{"runAsUser": 7.0},
	"resources":                map[string]any{"requests": map[string]any{"cpu": "7", "memory": "7Gi"}},

	"access.tokens": []any{map[string]any{"name": "sample"}}, "access.issuers": []any{map[string]any{"issuer": "sample"}},
	"access.tenants": []any{map[string]any{"name": "sample"}}, "etcd.endpoints": []any{"sample:2379"},
	"etcd.trial.storage": "7Gi", "etcd.trial.quotaBytes": 1e9, "agent.allow": []any{"/sample"},
	"agent.hostPath": "/sample", "image.digest": "sha256:" + strings.Repeat("7", 64),
	"gateway.service.clusterIP": "10.7.0.7", "gateway.service.ipFamilies": []any{"IPv6"},
	"gateway.service.allocateLoadBalancerNodePorts": true,
	"agent.capacity": []any{"slots=7"}, "agent.attributes": []any{"sample=1"}, "agent.workerUids": "7000-7999",
	"agent.storage.size": "7Gi", "podMonitor.interval": "7s", "prometheusRule.runbookUrl": "https://sample.example.com",
	"gateway.autoscaling.minReplicas": 4.0, "options": map[string]any{"log-format": "text"},
}

// TestValuesHaveEffect changes one value after the other in every value set: each value must
// change the objects of some release.
func TestValuesHaveEffect(t *testing.T) {
	before := map[string]map[string]string{}
	for _, set := range valueSets(t) {
		files, err := render(readValues(t, set))
		if err != nil {
			t.Fatal(err)
		}
		before[set] = files
	}
	root := readSchema(t)
	leaves := map[string]schema{}
	var collect func(at string, s map[string]schema)
	collect = func(at string, s map[string]schema) {
		for name, of := range s {
			if of.Properties == nil || name == "options" {
				leaves[at+name] = of
			} else {
				collect(at+name+".", of.Properties)
			}
		}
	}
	collect("", root.Properties)
	if len(leaves) < 100 {
		t.Fatalf("only %d values", len(leaves))
	}
	for _, choice := range []string{"insecure", "tls.enabled", "etcd.trial.enabled"} {
		delete(leaves, choice) // the values must make this choice, which TestWrongValues checks
	}
	for path, of := range leaves {
		// The sets that have other values of the component are the most likely ones.
		component, _, _ := strings.Cut(path, ".")
		sets := slices.SortedFunc(maps.Keys(before), func(a, b string) int {
			return cmp.Compare(related(t, b, component), related(t, a, component))
		})
		if !slices.ContainsFunc(sets, func(set string) bool {
			return slices.ContainsFunc(candidates(path, of), func(sample any) bool {
				values := readValues(t, set)
				at, parts := values, strings.Split(path, ".")
				for _, part := range parts[:len(parts)-1] {
					if at[part] == nil {
						at[part] = map[string]any{}
					}
					at = at[part].(map[string]any)
				}
				at[parts[len(parts)-1]] = sample
				after, err := render(values)
				delete(after, "berth/templates/NOTES.txt")
				return err == nil && !reflect.DeepEqual(after, without(before[set], "berth/templates/NOTES.txt"))
			})
		}) {
			t.Errorf("%s has no effect", path)
		}
	}
}

// related returns how many values a set has for a component.
func related(t *testing.T, set, component string) int {
	if values, ok := readValues(t, set)[component].(map[string]any); ok {
		return len(values)
	}
	return 0
}

func without(files map[string]string, name string) map[string]string {
	files = maps.Clone(files)
	delete(files, name)
	return files
}

// candidates returns values of the type of a schema.
func candidates(path string, of schema) []any {
	if sample, has := samples[path]; has {
		return []any{sample}
	}
	if sample, has := samples[strings.TrimPrefix(of.Ref, "#/$defs/")]; has {
		return []any{sample}
	}
	switch {
	case of.Enum != nil:
		return of.Enum
	case strings.HasSuffix(path, ".options"):
		return []any{samples["options"]}
	case of.Type == "boolean":
		return []any{true, false}
	case of.Type == "integer":
		return []any{7.0}
	case of.Type == "object":
		return []any{map[string]any{"sample": "sample"}}
	}
	return []any{"sample"}
}
