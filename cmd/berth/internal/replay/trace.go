package replay

import (
	"maps"

	"berth.dev/pkg/resource"
)

// The files of a trace, and their columns.
const (
	nodesFile     = "nodes.csv"
	instancesFile = "instances.csv"
)

var (
	nodeColumns         = []string{"node_name", "cpu_num", "gpu_capacity_num"}
	optionalNodeColumns = []string{"gpu_model"}

	instanceColumns         = []string{"app_name", "role", "cpu_request", "gpu_request", "creation_time", "deletion_time"}
	optionalInstanceColumns = []string{
		"instance_sn", "cpu_limit", "gpu_limit", "rdma_request", "rdma_limit", "memory_request", "memory_limit",
		"disk_request", "disk_limit", "max_instance_per_node", "scheduled_time",
	}
)

// never is the time of a creation or deletion that the trace does not contain.
const never = -1

// nodeSlots is the number of slots of a node. It is so large that cpu and gpu limit the
// workers of a node. The trace has no slots, and the default of Berth is 1.
const nodeSlots = 1000

// Node is a host of the trace.
type Node struct {
	Name, Model string
	Resources   resource.Vector
}

// Instance is one worker of the trace.
type Instance struct {
	App, Role string
	Each      resource.Vector
	// Created and Deleted are seconds of the trace or never.
	Created, Deleted int64
}

// ReadNodes reads nodes.csv: the first limit nodes, or all if limit is 0.
func ReadNodes(dir string, limit int) ([]Node, error) {
	var nodes []Node
	seen := map[string]bool{}
	err := readTable(dir, nodesFile, nodeColumns, optionalNodeColumns, func(t *table) {
		if limit > 0 && len(nodes) == limit {
			return
		}
		n := Node{Name: t.name("node_name")}
		if seen[n.Name] {
			t.wrong("node_name", "must be unique, got %q twice", n.Name)
		}
		seen[n.Name] = true
		if t.text("gpu_model") != "" {
			n.Model = t.name("gpu_model")
		}
		n.Resources = cpuAndGPU(t, "cpu_num", "gpu_capacity_num")
		n.Resources[resource.Slots] = nodeSlots
		nodes = append(nodes, n)
	})
	return nodes, err
}

// ReadInstances reads instances.csv.
func ReadInstances(dir string) ([]Instance, error) {
	var instances []Instance
	err := readTable(dir, instancesFile, instanceColumns, optionalInstanceColumns, func(t *table) {
		instances = append(instances, Instance{
			App:     t.name("app_name"),
			Role:    t.name("role"),
			Each:    cpuAndGPU(t, "cpu_request", "gpu_request"),
			Created: t.amount("creation_time", 1, never, false),
			Deleted: t.amount("deletion_time", 1, never, false),
		})
	})
	return instances, err
}

// cpuAndGPU reads the numbers of cores and GPUs and returns them in base units. It omits
// amounts of 0.
func cpuAndGPU(t *table, cpu, gpu string) resource.Vector {
	v := resource.Vector{"cpu": t.amount(cpu, 1000, 0, false), "gpu": t.amount(gpu, 1, 0, true)}
	maps.DeleteFunc(v, func(_ string, amount int64) bool { return amount == 0 })
	return v
}
