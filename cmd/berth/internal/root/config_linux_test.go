package root

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/cmd/berth/internal/cli"
	"berth.dev/pkg/process"
	"berth.dev/pkg/yamlfile"
)

// samples has two items of every list without a default.
var samples = map[string][2]string{
	"etcd-endpoints": {"127.0.0.1:2379", "[::1]:2379"}, "gateways": {"a:1", "b:2"}, "registry": {"a:1", "b:2"},
	"executor-state": {"a:1", "b:2"}, "assigner": {"a:1", "b:2"}, "parent": {"a:1", "http://b:2"},
	"gateway": {"a:1", "http://b:2"},
	"members": {"a=127.0.0.1:1", "b=127.0.0.1:2"}, "public-names": {"a.example", "b.example"},
	"resources": {"slots=4", "cpu=500m"}, "reserved": {"a:slots=1", "b:slots=1"}, "attributes": {"a=b", "c=d"},
	"default-attributes": {"a=b", "c=d"}, "allow": {"/bin/a", "/bin/b"}, "allow-env": {"A", "B"},
}

// zeros has the options for which zero means zero although their default is another number. The
// others refuse zero.
var zeros = []string{"stop-timeout", "trace-ratio"}

// empties has the options for which an empty text means none although their default is not empty.
var empties = []string{"http-listen"}

// mistake is a text in place of the value of an option, and a part of the expected problem. An empty
// part means that the value is accepted.
type mistake struct{ text, want string }

// mistakes returns values of an option: wrong types, missing units, maps and lists, and the texts
// that are accepted.
func mistakes(t *testing.T, process string, o *pflag.Flag) []mistake {
	t.Helper()
	const number, boolean, duration = "must be a whole number", "must be true or false", "must be a duration such as 90s, 10m or 1h30m"
	all := []mistake{
		{"{a: b}", "got a mapping"}, {"", "has no value"}, {"~", "has no value"},
		{"!!binary YQ==", "without the tag !!binary"}, {"!other a", "without the tag !other"},
	}
	kind := o.Value.Type()
	if kind != "stringSlice" {
		all = append(all, mistake{"[a]", "got a list"}, mistake{"|\n  a\n  b", "on one line"})
	}
	zero := mistake{"0", "must be "}
	if slices.Contains(zeros, o.Name) {
		zero.want = ""
	}
	switch kind {
	case "string":
		if o.DefValue != "" && !slices.Contains(empties, o.Name) {
			all = append(all, mistake{`""`, "must "})
		}
	case "bool":
		for _, text := range []string{"1", "0", "2", "yes", "on", "t", "maybe", "0.5", "tRuE ."} {
			all = append(all, mistake{text, boolean + `, got "` + text})
		}
		all = append(all, mistake{"true", ""}, mistake{"False", ""}, mistake{`"true"`, ""})
	case "int":
		for _, text := range []string{"2.5", "2.0", "1e3", "many", "true", "0012", "'010'", "1 000", "1,000", ".inf",
			"99999999999999999999"} {
			all = append(all, mistake{text, number})
		}
		if o.DefValue != "0" {
			all = append(all, mistake{o.DefValue, ""}, mistake{"'" + o.DefValue + "'", ""}, zero)
		}
	case "float64":
		for _, text := range []string{"many", "true", ".nan", "nan", "inf", "0,5"} {
			all = append(all, mistake{text, "must be a number"})
		}
		all = append(all, mistake{"-1", "must be between 0 and 1"}, mistake{"1.5", "must be between 0 and 1"},
			mistake{"0.5", ""}, zero)
	case "duration":
		for _, text := range []string{"300", "30", "2.5", "1e3"} {
			all = append(all, mistake{text, duration + `, got "` + text + `", which has no unit`})
		}
		for _, text := range []string{"soon", "true", "10 s", "5 minutes", "1d", "10S"} {
			all = append(all, mistake{text, duration})
		}
		all = append(all, mistake{"-1s", "must be "})
		if o.DefValue != "0s" {
			all = append(all, mistake{o.DefValue, ""}, zero, mistake{"0s", zero.want})
		}
	case "stringSlice":
		items, known := samples[o.Name]
		if !known {
			t.Fatalf("berth %s: add items of --%s to the samples", process, o.Name)
		}
		a, b := items[0], items[1]
		all = append(all,
			mistake{fmt.Sprintf("['%s', '%s']", a, b), ""}, mistake{fmt.Sprintf("[' %s ', '%s\t']", a, b), ""},
			mistake{fmt.Sprintf("'%s,%s'", a, b), ""}, mistake{fmt.Sprintf("' %s , %s '", a, b), ""},
			mistake{fmt.Sprintf("'%s,,%s'", a, b), "item 2 of the list is empty"},
			mistake{fmt.Sprintf("'%s, '", a), "item 2 of the list is empty"},
			mistake{fmt.Sprintf("['%s', '']", a), "item 2 of the list is empty"},
			mistake{fmt.Sprintf("['%s', ]", a), ""}, mistake{fmt.Sprintf("['%s', ~]", a), "item 2 of the list is empty"},
			mistake{"[{a: 1}]", "must be text, got a mapping"}, mistake{"[[a]]", "must be text, got a list"},
			mistake{"[a: 1]", "remove the space after the colon"},
		)
		if o.DefValue != "[]" {
			all = append(all, mistake{"[]", "must have at least one item"}, mistake{`""`, "must have at least one item"})
		}
		if strings.HasSuffix(a, ":1") || strings.HasSuffix(a, ":2379") {
			for _, text := range []string{"a", "a:0", "':1'", "a:65536", "'a b:1'", "ftp://a:1", "a:x y", "'a;b:1'"} {
				all = append(all, mistake{"[" + text + "]", "must be "})
			}
		}
	default:
		t.Fatalf("berth %s: --%s has the type %s", process, o.Name, kind)
	}
	return all
}

// processCommands returns the commands of a new root that run a process.
func processCommands() (list []*cobra.Command) {
	for _, cmd := range New(cli.Standard()).Commands() {
		if _, isProcess, _ := process.CheckFile(cmd, ""); isProcess {
			list = append(list, cmd)
		}
	}
	return list
}

// options returns the options of a process.
func options(cmd *cobra.Command) (list []*pflag.Flag) {
	cmd.Flags().VisitAll(func(o *pflag.Flag) {
		if o.Name != "config" && o.Name != "help" {
			list = append(list, o)
		}
	})
	return list
}

// Every option of every process has the same rules in a file: no value is converted, and each
// mistake is reported in its line with the accepted form.
func TestEveryOptionInAFile(t *testing.T) {
	file, n := filepath.Join(t.TempDir(), "berth.yaml"), 0
	for _, cmd := range processCommands() {
		// Each file has one line for each option.
		type line struct{ key, value, field, want string }
		var files [][]line
		add := func(i int, l line) {
			if i == len(files) {
				files = append(files, nil)
			}
			files[i] = append(files[i], l)
		}
		for _, o := range options(cmd) {
			n++
			const unknown = "unknown key"
			title, twice := strings.ToUpper(o.Name[:1])+o.Name[1:], unknown+"; did you mean "+o.Name+"?"
			add(0, line{title, "a", title, twice})
			add(1, line{strings.ToUpper(o.Name), "a", strings.ToUpper(o.Name), twice})
			add(2, line{strings.ReplaceAll(o.Name, "-", "_") + "_", "a", strings.ReplaceAll(o.Name, "-", "_") + "_", unknown})
			for i, m := range mistakes(t, cmd.Name(), o) {
				add(i+3, line{o.Name, m.text, o.Name, m.want})
			}
		}
		for _, lines := range files {
			text, at := "# a comment\n\n", map[int]line{}
			for _, l := range lines {
				at[1+strings.Count(text, "\n")] = l
				text += l.key + ": " + l.value + "\n"
			}
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			check, _, err := process.CheckFile(cmd, file)
			if err != nil {
				t.Fatal(err)
			}
			for number, l := range at {
				i := slices.IndexFunc(check.Problems, func(p yamlfile.Problem) bool { return p.Line == number })
				switch {
				case i < 0 && l.want != "":
					t.Errorf("berth %s: %s: %s is accepted, want %s", cmd.Name(), l.key, l.value, l.want)
				case i >= 0 && (l.want == "" || check.Problems[i].Field != l.field || check.Problems[i].File != file ||
					!strings.Contains(check.Problems[i].Text, l.want)):
					t.Errorf("berth %s: %s: %s: %v, want %s: %s", cmd.Name(), l.key, l.value, check.Problems[i], l.field, l.want)
				}
			}
		}
	}
	if n < 200 {
		t.Errorf("there are only %d options", n)
	}
}

// A key that is set twice is a mistake whatever the option. So are a tab and a second document,
// whatever stands before them.
func TestEveryOptionTwice(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.yaml")
	for _, cmd := range processCommands() {
		check := func(text string) []yamlfile.Problem {
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			check, _, err := process.CheckFile(cmd, file)
			if err != nil {
				t.Fatal(err)
			}
			return check.Problems
		}
		text, all := "", options(cmd)
		for _, o := range all {
			text += o.Name + ": a\n"
		}
		twice := check(text + text)
		for i, o := range all {
			want := fmt.Sprintf("is set twice, the first time in line %d: remove one of them", i+1)
			if !slices.Contains(twice, yamlfile.Problem{File: file, Line: len(all) + i + 1, Field: o.Name, Text: want}) {
				t.Errorf("berth %s: %s is set twice: %v", cmd.Name(), o.Name, twice)
			}
		}
		for suffix, want := range map[string]string{
			"\t" + text:    "is not valid YAML: the line is indented with a tab; use spaces",
			"---\n" + text: "must have one YAML document: remove the line --- and what follows",
			"}\n":          "is not valid YAML: did not find expected key",
		} {
			if got := check(text + suffix); !slices.Contains(got, yamlfile.Problem{File: file, Line: len(all) + 1, Text: want}) {
				t.Errorf("berth %s: %q: %v", cmd.Name(), suffix, got)
			}
		}
	}
}

// wrong has texts that the environment and flags refuse, by the type of the flag.
var wrong = map[string][]string{
	"bool": {"yes", "maybe", "2"}, "int": {"2.5", "many", "0012", "1e3"}, "float64": {"many", "nan"},
	"duration": {"300", "soon"}, "stringSlice": {"a,,b", "a, "},
}

// The environment has the rules of the file, except that 1 and 0 are booleans too.
func TestEveryOptionInTheEnvironment(t *testing.T) {
	variable := regexp.MustCompile(`\[(BERTH_\w+)\]`)
	for i := range 4 {
		for _, cmd := range processCommands() {
			var want []string
			for _, o := range options(cmd) {
				if texts := wrong[o.Value.Type()]; i < len(texts) {
					name := variable.FindStringSubmatch(o.Usage)[1]
					t.Setenv(name, texts[i])
					want = append(want, name+": "+o.Name+": ")
				}
			}
			cmd.SetContext(t.Context())
			err := cmd.RunE(cmd, nil)
			if err == nil {
				t.Fatalf("berth %s runs", cmd.Name())
			}
			for _, prefix := range want {
				if !strings.Contains("; "+err.Error(), "; "+prefix) {
					t.Errorf("berth %s: %v, want %s", cmd.Name(), err, prefix)
				}
			}
			for _, o := range options(cmd) {
				t.Setenv(variable.FindStringSubmatch(o.Usage)[1], "")
			}
		}
	}
}

// Flags have the rules of the environment.
func TestEveryOptionAsAFlag(t *testing.T) {
	for i := range 4 {
		for _, cmd := range processCommands() {
			var lists []string
			for _, o := range options(cmd) {
				texts := wrong[o.Value.Type()]
				switch prefix := "--" + o.Name + ": must be "; {
				case i >= len(texts):
				case o.Value.Type() == "stringSlice":
					lists = append(lists, "--"+o.Name)
					if err := cmd.ParseFlags([]string{"--" + o.Name, texts[i]}); err != nil {
						t.Errorf("berth %s: %v", cmd.Name(), err)
					}
				default:
					err := process.FlagError(cmd.ParseFlags([]string{"--" + o.Name + "=" + texts[i]}))
					if o.Name != "trace-ratio" && (err == nil || !strings.HasPrefix(err.Error(), prefix)) {
						t.Errorf("berth %s: %q: %v, want %s", cmd.Name(), texts[i], err, prefix)
					}
				}
			}
			if len(lists) == 0 {
				continue
			}
			cmd.SetContext(t.Context())
			err := cmd.RunE(cmd, nil)
			if err == nil {
				t.Fatalf("berth %s runs", cmd.Name())
			}
			for _, name := range lists {
				if !strings.Contains("; "+err.Error(), "; "+name+": item 2 of the list is empty") {
					t.Errorf("berth %s: %v, want %s", cmd.Name(), err, name)
				}
			}
		}
	}
}

// A file with the default of every option is valid.
func TestDefaultsAreValidInAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "berth.yaml")
	for _, cmd := range processCommands() {
		text := ""
		for _, o := range options(cmd) {
			// Zero stands for the default of starts, which depends on the host.
			if o.DefValue != "" && o.DefValue != "[]" && o.Name != "starts" {
				text += o.Name + ": " + o.DefValue + "\n"
			}
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if check, _, err := process.CheckFile(cmd, file); err != nil || len(check.Problems) > 0 || check.Set == 0 {
			t.Errorf("berth %s: %+v, %v", cmd.Name(), check, err)
		}
	}
}

// berth runs a command line and returns its output and exit code.
func berth(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	var b bytes.Buffer
	streams := cli.Standard()
	streams.Out, streams.Err = &b, &b
	streams.Env = func(name string) string {
		if name == "BERTH_CONTEXTS" {
			return "/dev/null/none" // doctor --config reads no contexts
		}
		return ""
	}
	code = cli.Run(t.Context(), New(streams), args)
	return b.String(), code
}

// berth doctor --config finds the process of a file by its name or by its keys, and prints every
// problem.
func TestDoctorChecksAFile(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("BERTH_TTL", "nonsense") // only the file counts
	for _, c := range []struct {
		name, text, service string
		code                int
		want                []string // lines of the output
	}{
		{"agent.yaml", "id: 0012\nstop-when-isolated-after: 300\nstarts: 2.5\nId: a\n", "", 1, []string{
			`FAIL  config  FILE:2: stop-when-isolated-after: must be a duration such as 90s, 10m or 1h30m, got "300", which has no unit`,
			`FAIL  config  FILE:3: starts: must be a whole number, got "2.5"`,
			`FAIL  config  FILE:4: Id: unknown key; did you mean id?`,
			`berth: FILE has 3 problems as the configuration of berth agent; --service names another process`,
		}},
		{"berth-agent.yaml", "id: 0012\nlisten: 127.0.0.1:0\n", "", 0, []string{"OK    config  FILE is valid as the configuration of berth agent: 2 keys set"}},
		{"prod.yaml", "call-deadline: 30\n", "", 1, []string{
			`FAIL  config  FILE:1: call-deadline: must be a duration such as 90s, 10m or 1h30m, got "30", which has no unit`,
			`berth: FILE has a problem as the configuration of berth gateway; --service names another process`,
		}},
		{"agent.yaml", "dir: ~/a\nwork-dir: ~b/c\ntls-ca: ~/ca.pem\n", "", 1, []string{
			`FAIL  config  FILE:1: dir: must be a path without ~, which is not expanded; use an absolute path, got "~/a"`,
			`FAIL  config  FILE:2: work-dir: must be a path without ~, which is not expanded; use an absolute path, got "~b/c"`,
			`FAIL  config  FILE:3: tls-ca: must be a path without ~, which is not expanded; use an absolute path, got "~/ca.pem"`}},
		{"agent.yaml", "advertise: '[::]:7200'\n", "", 1, []string{
			`FAIL  config  FILE:1: advertise: must be host:port with a host that other processes reach, such as 10.0.0.7:7101 or host-a:7101, got "[::]:7200"`}},
		{"agent.yaml", "id: a/b\nsku: a b/c\nattributes: [zone = a]\nresources: [my gpu=2]\nallow-env: [FOO*]\n" +
			"reserved: ['db:cpu=110%']\n", "", 1, []string{
			`FAIL  config  FILE:1: id: must contain only letters, digits, '.', '_' and '-', and start with a letter or digit, got "a/b"`,
			`FAIL  config  FILE:2: sku: must contain only letters, digits, '.', '_' and '-', and start with a letter or digit, got "a b/c"`,
			`FAIL  config  FILE:3: attributes: "zone ": must contain only letters, digits, '.', '_' and '-', and start with a letter or digit`,
			`FAIL  config  FILE:4: resources: "my gpu": must contain only letters, digits, '.', '_' and '-', and start with a letter or digit`,
			`FAIL  config  FILE:5: allow-env: must have exact names of variables or *, got "FOO*"`,
			`FAIL  config  FILE:6: reserved: cpu must be a whole percentage between 1% and 100%, got "110%"`}},
		{"agent.yaml", "reserved: ['db:cpu=110%']\n", "", 1, []string{
			`FAIL  config  FILE:1: reserved: cpu must be a whole percentage between 1% and 100%, got "110%"`}},
		{"agent.yaml", "id: " + strings.Repeat("a", 254) + "\nallow-env: [FOO=bar]\n", "", 1, []string{
			`FAIL  config  FILE:1: id: must have at most 253 characters, got 254, got "` + strings.Repeat("a", 60) + `"`,
			`FAIL  config  FILE:2: allow-env: must have exact names of variables or *, got "FOO=bar"`}},
		{"agent.yaml", "resources: [memory=4, Memory=4Gi, gpu]\nstop-when-isolated-after: 1ns\n", "", 1, []string{
			`FAIL  config  FILE:1: resources: "gpu" is not name=value, or its name occurs twice`,
			`FAIL  config  FILE:2: stop-when-isolated-after: must be 0 or at least 1s, got 1ns`}},
		{"agent.yaml", "resources: [cpu=a, gpu=b]\n", "", 1, []string{
			`FAIL  config  FILE:1: resources: cpu must be a quantity such as 2 or 500m, got "a"`,
			`FAIL  config  FILE:1: resources: gpu must be a quantity such as 2, got "b"`}},
		{"agent.yaml", "resources: [memory=4, Memory=4Gi]\nlisten: 127.0.0.1:7200\nhttp-listen: :7200\n", "", 0, []string{
			`WARN  config  FILE:1: resources: Memory: this is not the resource memory, because names of resources are case-sensitive`,
			`WARN  config  FILE:1: resources: memory: 4 bytes is less than 1Mi; a number without a suffix is in bytes, and 4Gi is four gibibytes`,
			`WARN  config  FILE:3: http-listen: must differ from --listen, got :7200 for both`}},
		{"gateway.yaml", "listen: :8080\nagents-listen: 127.0.0.1:8080\n", "", 0, []string{
			`WARN  config  FILE:2: agents-listen: must differ from --listen, got 127.0.0.1:8080 for both`}},
		{"cell.yaml", "id: a/b\nattributes: [zone = a]\n", "", 1, []string{
			`FAIL  config  FILE:1: id: must be 1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit, got "a/b"`,
			`FAIL  config  FILE:2: attributes: "zone ": must contain only letters, digits, '.', '_' and '-', and start with a letter or digit`}},
		{"sim.yaml", "prefix: a/b\nsku: a b\n", "", 1, []string{
			`FAIL  config  FILE:1: prefix: must contain only letters, digits, '.', '_' and '-', and start with a letter or digit, got "a/b-99"`,
			`FAIL  config  FILE:2: sku: must contain only letters, digits, '.', '_' and '-', and start with a letter or digit, got "a b"`}},
		{"prod.yaml", "cluster: a\nttl: 5s\n", "", 0, []string{"OK    config  FILE is valid as the configuration of berth registry: 2 keys set"}},
		{"registry.yaml", "call-deadline: 30s\n", "gateway", 0, []string{"OK    config  FILE is valid as the configuration of berth gateway: 1 key set"}},
		{"gateway.yaml", "base-path: /berth/\n", "", 0, []string{"OK    config  FILE is valid as the configuration of berth gateway: 1 key set"}},
		{"gateway.yaml", "base-path: /\n", "", 0, []string{"OK    config  FILE is valid as the configuration of berth gateway: 1 key set"}},
		{"gateway.yaml", "base-path: /v1/\n", "", 1, []string{
			`FAIL  config  FILE:1: base-path: must not begin with /v1, which is a path of the gateway itself, got "/v1/"`}},
		{"a.yaml", "order: EPOCH\ndebounce: 1h\nreadiness: no\nlisten: 0.0.0.0:80\ntls-key: k\n", "registry", 1, []string{
			`WARN  config  FILE: tls-cert: is required: set --tls-cert, --tls-key, --tls-ca together`,
			`FAIL  config  FILE:1: order: must be one of class, epoch, got "EPOCH"`,
			`FAIL  config  FILE:2: debounce: must be between 1ms and 10s, got 1h0m0s`,
			`FAIL  config  FILE:3: readiness: must be auto or signal, got "no"`,
			`WARN  config  FILE:4: listen: --listen 0.0.0.0:80 is open to the network without TLS: configure TLS or add --insecure`,
		}},
		{"a.yaml", "etcd-endpoints: [etcd-0:2379]\n", "registry", 0, []string{
			`WARN  config  FILE:1: etcd-endpoints: --etcd-endpoints etcd-0:2379 is beyond loopback and has no TLS: use https:// or add --insecure`,
			`OK    config  FILE is valid as the configuration of berth registry: 1 key set`,
		}},
		{"prod.yaml", "tenants: [{name: 0012, limits: {workers: 2.5, batch: 1e3}}]\n", "", 1, []string{
			`FAIL  config  FILE:1: tenants[0].limits.workers: must be a whole number, got "2.5"`,
			`FAIL  config  FILE:1: tenants[0].limits.batch: must be a whole number, got "1e3"`,
			`berth: FILE has 2 problems as an access file; --service names another process`,
		}},
		{"access.yaml", "tokens: [{role: king}]\n", "", 1, []string{
			`FAIL  config  FILE:1: tokens[0].role: must be one of job, autoscaler, viewer or operator, got "king"`}},
		{"access.yaml", "issuers: [{issuer: 'http://x'}]\ntenants: [{}]\n", "", 1, []string{
			`FAIL  config  FILE:1: issuers[0].issuer: must be an https:// URL, got "http://x"`,
			`FAIL  config  FILE:2: tenants[0].name: must be a name of 1 to 128 bytes, got ""`}},
		{"access.yaml", "", "", 1, []string{`FAIL  config  FILE: the file is empty: write {} if it should have no entries`}},
		{"config.yaml", "contexts:\n  prod: {gateway: 'a:1', tls-ca: [x]}\n", "", 1, []string{
			`FAIL  config  FILE:2: contexts.prod.tls-ca: must be text, got a list`}},
		{"config.yaml", "contexts:\n  prod: {gate: 'a:1'}\n  b: {gateway: 'b:1', tls-key: k}\ncurrent: c\n", "", 1, []string{
			`FAIL  config  FILE:3: contexts.b.tls-cert: must be set together with tls-key`,
			`FAIL  config  FILE:2: contexts.prod.gateway: is required: HOST:PORT or a URL`,
			`FAIL  config  FILE:4: current: there is no context "c", only: b, prod`}},
		{"config.yaml", "contexts:\n  prod: {gateway: 'a:1'}\ncurrent: prod\n", "", 0, []string{
			`OK    config  FILE is valid as the contexts of a user: 2 keys set`}},
		{"empty.yaml", "", "agent", 0, []string{"OK    config  FILE is valid as the configuration of berth agent: 0 keys set"}},
		{"empty.yaml", "", "agents", 2, []string{`berth: --service: must be one of registry, executor-state, assigner, gateway, agent, cell, dev, etcd, sim, access, contexts, got "agents"`}},
	} {
		file := filepath.Join(dir, c.name)
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"doctor", "--config", file}
		if c.service != "" {
			args = append(args, "--service", c.service)
		}
		out, code := berth(t, args...)
		out = strings.ReplaceAll(out, file, "FILE")
		if code != c.code {
			t.Errorf("%s: exit code %d: %s", c.text, code, out)
		}
		for _, line := range c.want {
			if !strings.Contains(out+"\n", line+"\n") {
				t.Errorf("%s: no line %s in\n%s", c.text, line, out)
			}
		}
	}
	if out, code := berth(t, "doctor", "--config", filepath.Join(dir, "none.yaml")); code != rpc.ExitUsage ||
		!strings.Contains(out, "no such file or directory") {
		t.Errorf("a file that does not exist: %d, %s", code, out)
	}
}

// The order of sources of a process that loads its configuration is not the matter of doctor: a
// command with a mistake in its file does not run.
func TestAProcessRefusesAFileWithMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte("stop-when-isolated-after: 300\nstarts: 0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, _, err := New(cli.Standard()).Find([]string{"agent"})
	if err != nil {
		t.Fatal(err)
	}
	cmd.SetContext(context.Background())
	if err := cmd.ParseFlags([]string{"--config", file}); err != nil {
		t.Fatal(err)
	}
	f := fault.Of(cmd.RunE(cmd, nil))
	if f == nil || f.Kind != fault.Invalid || len(f.Fields) != 2 ||
		!strings.HasPrefix(f.Message, file+":1: stop-when-isolated-after: must be a duration ") ||
		!strings.Contains(f.Message, "; "+file+":2: starts: must be at least 1, got 0") {
		t.Errorf("%+v", f)
	}
}

// A process that cannot open something says what, which option names it, and why, in the words of
// the operating system.
func TestWhatCannotBeOpened(t *testing.T) {
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	busy, missing, file := taken.Addr().String(), filepath.Join(dir, "none", "file"), filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(file, "dir")
	const other, none, unassigned = "192.0.2.1:7", "no such file or directory", "cannot assign requested address"
	for _, c := range []struct{ args, want string }{
		{"sim --insecure --listen " + other, "--listen: cannot listen on " + other + ": " + unassigned},
		{"sim --listen " + busy, "--listen " + busy + " is in use by another process: address already in use"},
		{"registry --insecure --listen " + other, "--listen: cannot listen on " + other + ": " + unassigned},
		{"registry --insecure --listen 127.0.0.1:0 --http-listen " + other, "--http-listen: cannot listen on " + other + ": " + unassigned},
		{"gateway --insecure --listen 127.0.0.1:0 --agents-listen " + other, "--agents-listen: cannot listen on " + other + ": " + unassigned},
		{"gateway --insecure --listen 127.0.0.1:0 --agents-listen 127.0.0.1:0 --internal-listen " + busy,
			"--internal-listen " + busy + " is in use by another process: address already in use"},
		{"sim --listen 127.0.0.1:0 --address-file " + missing, "--address-file: cannot write " + missing + ": " + none},
		{"registry --audit-log " + missing, "--audit-log: cannot write " + missing + ": " + none},
		{"registry --audit-log " + dir, "--audit-log: cannot write " + dir + ": is a directory"},
		{"registry --access " + missing, "--access " + missing + ": stat " + missing + ": " + none},
		{"registry --listen 127.0.0.1:0 --http-listen 127.0.0.1:0 --etcd-user u --etcd-password-file " + missing,
			"--etcd-password-file: cannot read " + missing + ": " + none},
		{"registry --tls-ca " + missing + " --tls-key k --tls-cert " + missing,
			"cannot use --tls-cert, --tls-key, --tls-ca: stat " + missing + ": " + none},
		{"registry --config " + missing, "--config: cannot read the configuration file: open " + missing + ": " + none},
		{"agent --dir " + below, "--dir " + below + " cannot be created: not a directory"},
		{"dev --data-dir " + below, "--data-dir " + below + " cannot be created: not a directory"},
		{"dev --tls --data-dir " + below, "--data-dir " + below + " cannot be created: not a directory"},
		{"dev --agents-listen 192.0.2.1:0 --tls --data-dir " + filepath.Join(dir, "a"),
			"--agents-listen: cannot listen on 192.0.2.1:0: " + unassigned},
		{"dev --listen " + busy + " --data-dir " + filepath.Join(dir, "b"), "--listen " + busy + " is in use by another process: address already in use"},
		{"etcd --dir " + below, "--dir " + below + " cannot be created: not a directory"},
		{"cell --id a --listen " + busy + " --dir " + filepath.Join(dir, "c"), "--listen " + busy + " is in use by another process: address already in use"},
		{"cell --id a --listen 127.0.0.1:0 --dir " + below, "--dir " + below + " cannot be created: not a directory"},
		{"cell --id a --gateway-token-file " + missing, "--gateway-token-file: cannot be read: open " + missing + ": " + none},
		{"replay " + dir + " --report " + missing, "nodes.csv: " + none},
		{"bench docs " + missing, missing},
	} {
		out, code := berth(t, strings.Fields(c.args)...)
		if code == 0 || !strings.Contains(out, "berth: "+c.want) && !strings.Contains(out, c.want+"\n") {
			t.Errorf("berth %s: exit code %d: %s, want %s", c.args, code, out, c.want)
		}
	}
}
