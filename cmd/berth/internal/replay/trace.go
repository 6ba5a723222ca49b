package replay

import "berth.dev/pkg/resource"

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

// never is the time of an event that does not happen.
const never = -1

// nodeSlots is the number of slots of a node, more than its cpu and gpu permit. The trace
// has no slots, and the default of Berth is 1.
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
	err := readTable(dir, nodesFile, nodeColumns, optionalNodeColumns, func(t *table) error {
		if limit > 0 && len(nodes) == limit {
			return nil
		}
		name, err := t.name("node_name")
		if err != nil {
			return err
		}
		if seen[name] {
			return t.wrong("node_name", "must be unique, got %q twice", name)
		}
		seen[name] = true
		model := t.text("gpu_model")
		if model != "" {
			if model, err = t.name("gpu_model"); err != nil {
				return err
			}
		}
		resources, err := cpuAndGPU(t, "cpu_num", "gpu_capacity_num")
		if err != nil {
			return err
		}
		resources[resource.Slots] = nodeSlots
		nodes = append(nodes, Node{Name: name, Model: model, Resources: resources})
		return nil
	})
	return nodes, err
}

// ReadInstances reads instances.csv.
func ReadInstances(dir string) ([]Instance, error) {
	var instances []Instance
	err := readTable(dir, instancesFile, instanceColumns, optionalInstanceColumns, func(t *table) error {
		var i Instance
		var err error
		if i.App, err = t.name("app_name"); err != nil {
			return err
		}
		if i.Role, err = t.name("role"); err != nil {
			return err
		}
		if i.Each, err = cpuAndGPU(t, "cpu_request", "gpu_request"); err != nil {
			return err
		}
		if i.Created, err = t.amount("creation_time", 1, never, false); err != nil {
			return err
		}
		if i.Deleted, err = t.amount("deletion_time", 1, never, false); err != nil {
			return err
		}
		instances = append(instances, i)
		return nil
	})
	return instances, err
}

// cpuAndGPU reads cores and cards in base units and omits amounts of 0.
func cpuAndGPU(t *table, cpu, gpu string) (resource.Vector, error) {
	v := resource.Vector{}
	for _, r := range []struct {
		name, column string
		unit         float64
		whole        bool
	}{{"cpu", cpu, 1000, false}, {"gpu", gpu, 1, true}} {
		amount, err := t.amount(r.column, r.unit, 0, r.whole)
		if err != nil {
			return nil, err
		}
		if amount > 0 {
			v[r.name] = amount
		}
	}
	return v, nil
}
