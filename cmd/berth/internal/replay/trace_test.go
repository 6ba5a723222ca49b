package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"berth.dev/api/fault"
	"berth.dev/pkg/resource"
)

const (
	goodNodes     = "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\n,,96.5,1\nH800,8,192,2\n"
	goodInstances = "instance_sn,role,app_name,cpu_request,gpu_request,creation_time,deletion_time\n" +
		"i0,HN,app_0,12,1,,\n" +
		"i1,CN,app_0,0.5,0,475.00000000000006,474.99999999\n"
)

func TestReadNodes(t *testing.T) {
	dir := writeTrace(t, map[string]string{nodesFile: goodNodes})
	nodes, err := ReadNodes(dir, 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []Node{
		{Name: "0", Model: "A10", Resources: resource.Vector{"cpu": 128_000, "gpu": 1, "slots": 1000}},
		{Name: "1", Resources: resource.Vector{"cpu": 96_500, "slots": 1000}},
	}
	if diff := cmp.Diff(want, nodes); diff != "" {
		t.Error(diff)
	}
	if nodes, _ := ReadNodes(dir, 0); len(nodes) != 3 {
		t.Errorf("%d nodes without a limit", len(nodes))
	}
}

func TestReadInstances(t *testing.T) {
	instances, err := ReadInstances(writeTrace(t, map[string]string{instancesFile: goodInstances}))
	if err != nil {
		t.Fatal(err)
	}
	want := []Instance{
		{App: "app_0", Role: "HN", Each: resource.Vector{"cpu": 12_000, "gpu": 1}, Created: never, Deleted: never},
		{App: "app_0", Role: "CN", Each: resource.Vector{"cpu": 500}, Created: 475, Deleted: 475},
	}
	if diff := cmp.Diff(want, instances); diff != "" {
		t.Error(diff)
	}
}

// TestBadTraces checks that errors name the file, line and column.
func TestBadTraces(t *testing.T) {
	tests := []struct {
		name, file, old, new, want string
	}{
		{"no nodes", nodesFile, goodNodes, "", `nodes.csv:1: column names are missing`},
		{"unknown column", nodesFile, "gpu_model", "colour", `nodes.csv:1: column colour: is unknown or not unique`},
		{"column twice", nodesFile, "gpu_model", "cpu_num", `nodes.csv:1: column cpu_num: is unknown or not unique`},
		{"column missing", instancesFile, ",deletion_time", "", `instances.csv:1: column deletion_time: is missing`},
		{"no number", nodesFile, "192", "many",
			`nodes.csv:4: column cpu_num: must be a number from 0 to 2^40 base units, got "many"`},
		{"negative", nodesFile, "192", "-1", `nodes.csv:4: column cpu_num: must be a number from 0 to 2^40 base units, got "-1"`},
		{"infinite", nodesFile, "192", "+Inf", `nodes.csv:4: column cpu_num: must be a number from 0 to 2^40 base units, got "+Inf"`},
		{"no time", instancesFile, "475.0", "x75.0",
			`instances.csv:3: column creation_time: must be a number from 0 to 2^40 base units, got "x75.00000000000006"`},
		{"half a card", instancesFile, "12,1,", "12,0.5,",
			`instances.csv:2: column gpu_request: must be a whole number, got "0.5"`},
		{"no name", instancesFile, "HN", "", `instances.csv:2: column role: must be 1 to 128 of [A-Za-z0-9._-], the first alphanumeric, got ""`},
		{"bad name", instancesFile, "HN,app_0", "HN,a/b",
			`instances.csv:2: column app_name: must be 1 to 128 of [A-Za-z0-9._-], the first alphanumeric, got "a/b"`},
		{"node twice", nodesFile, "192,2", "192,0", `nodes.csv:4: column node_name: must be unique, got "0" twice`},
		{"too few values", nodesFile, "8,192,2", "8,192", `nodes.csv:4: column 1: wrong number of fields`},
		{"unexpected quote", instancesFile, "i1", `i"1`, `instances.csv:3: column 2: bare " in non-quoted-field`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{nodesFile: goodNodes, instancesFile: goodInstances}
			files[tt.file] = strings.Replace(files[tt.file], tt.old, tt.new, 1)
			dir := writeTrace(t, files)
			_, err := ReadNodes(dir, 0)
			if err == nil {
				_, err = ReadInstances(dir)
			}
			if err == nil {
				t.Fatal("no error")
			}
			if f := fault.Of(err); f.Kind != fault.Invalid || f.Message != tt.want {
				t.Errorf("error %v %q\nwant %q", f.Kind, f.Message, tt.want)
			}
		})
	}
	_, err := ReadNodes(t.TempDir(), 0)
	if f := fault.Of(err); f == nil || f.Message != "cannot read nodes.csv: no such file or directory" {
		t.Errorf("error %v for a missing file", err)
	}
}

// TestRealTrace reads the trace in the directory BERTH_TRACE, if it is set.
func TestRealTrace(t *testing.T) {
	dir := os.Getenv("BERTH_TRACE")
	if dir == "" {
		t.Skip("BERTH_TRACE names no trace")
	}
	nodes, err := ReadNodes(filepath.Clean(dir), 0)
	if err != nil {
		t.Fatal(err)
	}
	instances, err := ReadInstances(dir)
	if err != nil {
		t.Fatal(err)
	}
	p := NewPlan(instances, "", 0)
	t.Logf("%d nodes, %d batches, %d workers, %d actions, %d jobs", len(nodes), len(p.Batches), p.Workers(),
		len(p.Actions), len(p.Jobs()))
	if p.Workers() != len(instances) {
		t.Errorf("%d workers of %d instances", p.Workers(), len(instances))
	}
}
