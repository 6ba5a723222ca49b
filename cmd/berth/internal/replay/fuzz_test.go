package replay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth.dev/api/fault"
)

// FuzzTrace checks that any trace is read, or rejected with an error that names the file
// and the line. The amounts and numbers of the plan must be within their bounds.
func FuzzTrace(f *testing.F) {
	f.Add(goodNodes, goodInstances)
	for _, text := range []string{
		"", "\n", "node_name,cpu_num,gpu_capacity_num\n", "node_name,cpu_num,gpu_capacity_num\na,1e300,0\n",
		"node_name,cpu_num,gpu_capacity_num\na,NaN,-0\n",
		"node_name,cpu_num,gpu_capacity_num\n\"a\nb\",1,1\n", "node_name,node_name\n", "\xff\n", "\"\n",
		"app_name,role,cpu_request,gpu_request,creation_time,deletion_time\na,b,1,1,1e12,-1\n",
		"app_name,role,cpu_request,gpu_request,creation_time,deletion_time\na,b,1,1,5,3\na,b,0x10,1,5,\n",
	} {
		f.Add(text, goodInstances)
		f.Add(goodNodes, text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, nodes, instances string) {
		for name, text := range map[string]string{nodesFile: nodes, instancesFile: instances} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		refused := func(file string, err error) {
			if e := fault.Of(err); e.Kind != fault.Invalid || !strings.HasPrefix(e.Message, file+":") {
				t.Fatalf("%v %s", e.Kind, e.Message)
			}
		}
		hosts, err := ReadNodes(dir, 0)
		if err != nil {
			refused(nodesFile, err)
			hosts = nil
		}
		for _, n := range hosts {
			for name, amount := range n.Resources {
				if amount < 0 || amount > maxAmount {
					t.Fatalf("%s of %s is %d", name, n.Name, amount)
				}
			}
		}
		workers, err := ReadInstances(dir)
		if err != nil {
			refused(instancesFile, err)
			return
		}
		plan := NewPlan(workers, "", 0)
		if plan.Workers() != len(workers) {
			t.Fatalf("%d workers of %d instances", plan.Workers(), len(workers))
		}
		last := int64(0)
		for _, a := range plan.Actions {
			if a.At < last || a.At > maxAmount {
				t.Fatalf("an action at %d after one at %d", a.At, last)
			}
			last = a.At
		}
	})
}
