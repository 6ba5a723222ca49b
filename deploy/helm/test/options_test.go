package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// owned has the flags that the chart itself sets for every process with a replica ID. own
// has all flags that the chart sets, by process. Values cannot set these flags.
var (
	secured = strings.Fields("tls-cert tls-key tls-ca tls-mode audit-log insecure")
	owned   = append(strings.Fields(`cluster etcd-endpoints etcd-cert etcd-key etcd-ca etcd-user etcd-password-file
		replica listen http-listen stop-timeout access`), secured...)
	own = map[string][]string{
		"registry":       append(strings.Fields("advertise gateways"), owned...),
		"executor-state": append(strings.Fields("advertise gateways"), owned...),
		"assigner":       append(strings.Fields("advertise gateways"), owned...),
		"gateway":        append(strings.Fields("registry executor-state assigner agents-listen internal-listen"), owned...),
		"agent": append(strings.Fields(`id gateways listen http-listen advertise dir allow allow-env worker-uids stop-workers
			stop-timeout resources attributes sku`), secured...),
	}
)

// unused has the flags that a pod does not need, because the pod is configured with flags
// and its addresses are known.
var unused = strings.Fields("config address-file help")

// typeOf maps the type of a flag in the binary's help to its name in the schema.
var typeOf = map[string]string{"text": "string", "flag": "", "count": "int", "share": "float", "duration": "duration",
	"words": "strings"}

// accepted returns the types of the flags of a process, by name.
func accepted(t *testing.T, process string) map[string]string {
	t.Helper()
	help, err := exec.Command(berth, process, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	flag := regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([a-z-]+)(?: (\w+))?\s{2,}`)
	all := map[string]string{}
	for _, f := range flag.FindAllStringSubmatch(string(help), -1) {
		all[f[1]] = f[2]
	}
	if len(all) < 10 {
		t.Fatalf("berth %s has only the flags %v", process, all)
	}
	return all
}

type schema struct {
	Ref        string            `json:"$ref"`
	Type       any               `json:"type"`
	Enum       []any             `json:"enum"`
	Properties map[string]schema `json:"properties"`
}

// readSchema reads the schema of the values.
func readSchema(t *testing.T) (root schema) {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	return root
}

// settable returns the options that values may set, by the key of the values.
func settable(t *testing.T, key string) map[string]schema {
	t.Helper()
	root := readSchema(t)
	if key == "options" {
		return root.Properties["options"].Properties
	}
	return root.Properties[key].Properties["options"].Properties
}

// TestSchemaMatchesFlags checks that each flag of a process is set by the chart, can be
// set in the values, or is not needed in a pod. The options in the schema must have the
// same types as the flags of the binary.
func TestSchemaMatchesFlags(t *testing.T) {
	for process, key := range map[string]string{
		"registry": "registry", "executor-state": "executorState", "assigner": "assigner", "gateway": "gateway",
		"agent": "agent",
	} {
		options := settable(t, key)
		flags := accepted(t, process)
		for name, type_ := range flags {
			option, isSet := options[name]
			_, isOwned := slices.BinarySearch(slices.Sorted(slices.Values(own[process])), name)
			switch isUnused := slices.Contains(unused, name); {
			case isSet && isOwned:
				t.Errorf("--%s of %s: both the chart and values set it", name, process)
			case !isSet && !isOwned && !isUnused:
				t.Errorf("--%s of %s is not in the schema: add it to %s.options", name, process, key)
			case isSet && typeOf[strings.TrimPrefix(option.Ref, "#/$defs/")] != type_:
				t.Errorf("--%s of %s is of type %q, and %s in the schema", name, process, type_, option.Ref)
			}
		}
		for _, name := range slices.Concat(slices.Collect(maps.Keys(options)), own[process]) {
			if _, has := flags[name]; !has {
				t.Errorf("%s has no --%s", process, name)
			}
		}
		for name, option := range settable(t, "options") {
			if options[name].Ref != option.Ref {
				t.Errorf("options.%s is for every process, but %s does not have it", name, process)
			}
		}
		for name, option := range settable(t, "services") {
			if is := process != "gateway" && process != "agent"; is && options[name].Ref != option.Ref {
				t.Errorf("services.options.%s is for every service, but %s does not have it", name, process)
			}
		}
	}
}

// TestBinaryAcceptsFlags checks that the binary accepts the flags of every value set and
// the format of their numbers.
func TestBinaryAcceptsFlags(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			c := template.Spec.Containers[0]
			if name == "berth-etcd" {
				continue
			}
			all, config := accepted(t, c.Args[0]), ""
			for flag, value := range flags(t, c) {
				if _, has := all[flag]; !has {
					t.Errorf("%s: berth %s has no --%s", name, c.Args[0], flag)
				}
				if strings.Contains(value, "e+") || strings.Contains(value, "<nil>") || strings.Contains(value, "map[") {
					t.Errorf("%s: --%s=%s", name, flag, value)
				}
				config += fmt.Sprintf("%s: %q\n", flag, expanded(value))
			}
			// The values have the form of the options.
			file := filepath.Join(t.TempDir(), "options.yaml")
			if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(berth, "doctor", "--config", file, "--service", c.Args[0]).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s\n%s", name, err, config, out)
			}
		}
	})
}

// TestOptionPrecedence checks that the options of a process override the options of its
// kind, and these override the options of all processes.
func TestOptionPrecedence(t *testing.T) {
	r := decodedValues(t, "options", map[string]any{
		"insecure":      true,
		"etcd":          map[string]any{"endpoints": []any{"etcd:2379"}},
		"options":       map[string]any{"log-level": "warn", "log-format": "text"},
		"services":      map[string]any{"options": map[string]any{"log-level": "error", "ttl": "3s"}},
		"executorState": map[string]any{"options": map[string]any{"log-level": "debug"}},
	})
	for name, want := range map[string]map[string]string{
		"berth-gateway":        {"log-level": "warn", "log-format": "text"},
		"berth-registry":       {"log-level": "error", "log-format": "text", "ttl": "3s"},
		"berth-executor-state": {"log-level": "debug", "log-format": "text", "ttl": "3s"},
	} {
		if got := flags(t, r.pods()[name].Spec.Containers[0]); !contains(got, want) {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
}
