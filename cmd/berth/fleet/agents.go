package fleet

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
)

// Agent describes an agent to start.
type Agent struct {
	ID    string
	Slots int
	// Resources has the resources in addition to slots, as name=quantity.
	Resources []string
	// Reserved has the shares of the resources that are reserved for workers of a role, as
	// role:name=quantity,name=quantity.
	Reserved []string
	// Attributes has the attributes of the executor, as name=value.
	Attributes []string
	SKU        string
	Generation int
	// Name is the name of the agent's process; default ID. Dir is the directory for workers
	// and their output; default a directory with the name of the process.
	Name, Dir string
	// Allow lists the absolute paths of the commands that workers may run; default "*", every
	// command.
	Allow []string
	// WorkDir is the working directory of the workers. By default each worker has its own.
	WorkDir string
	// Starts is the number of workers that the agent starts at the same time; 0 for the
	// default of the agent.
	Starts int
}

// GiveDirectory gives the directory of an agent that does not run to another executor. Agents refuse
// the directory of another executor.
func GiveDirectory(dir, id string) error {
	return os.WriteFile(filepath.Join(dir, "identity.json"), fmt.Appendf(nil, `{"executor": %q}`, id), 0o600)
}

// StartAgent starts a real agent.
func (f *Fleet) StartAgent(ctx context.Context, a Agent) error {
	resources := append([]string{"slots=" + strconv.Itoa(a.Slots)}, a.Resources...)
	if a.Allow == nil {
		a.Allow = []string{"*"}
	}
	a.Name = cmp.Or(a.Name, a.ID)
	a.Dir = cmp.Or(a.Dir, filepath.Join(f.config.Dir, a.Name))
	gateways, err := f.via(a.Name, model.ServiceGateway, f.AgentsGateways())
	if err != nil {
		return err
	}
	// The assigner sends start and stop requests to the advertised address. Via needs the
	// listen address to return the advertised address before the agent runs.
	listen, err := f.address(a.Name, 0)
	if err != nil {
		return err
	}
	advertise, err := f.config.Via("orders", a.Name, listen)
	if err != nil {
		return err
	}
	args := []string{"agent", "--id", a.ID, "--listen", listen, "--advertise", advertise, "--gateways", gateways,
		"--resources", strings.Join(resources, ","), "--attributes", strings.Join(a.Attributes, ","), "--sku", a.SKU,
		"--generation", strconv.Itoa(a.Generation), "--dir", a.Dir, "--work-dir", a.WorkDir,
		"--allow", strings.Join(a.Allow, ","), "--allow-env", "*", "--stop-workers", "--log-level", f.config.LogLevel}
	if a.Starts > 0 {
		args = append(args, "--starts", strconv.Itoa(a.Starts))
	}
	for _, share := range a.Reserved {
		args = append(args, "--reserved", share)
	}
	return f.startAgents(ctx, a.Name, a.ID, args)
}

// StartSim starts a process of n simulated executors, named prefix-0 and so on.
func (f *Fleet) StartSim(ctx context.Context, prefix string, n, slots int) error {
	gateways, err := f.via(prefix, model.ServiceGateway, f.AgentsGateways())
	if err != nil {
		return err
	}
	return f.startAgents(ctx, prefix, prefix+"-*", []string{"sim", "--prefix", prefix, "--sku", prefix, "--executors",
		strconv.Itoa(n),
		"--resources", "slots=" + strconv.Itoa(slots), "--gateways", gateways, "--log-level", f.config.LogLevel}, "--listen")
}

// StartCell starts the agent that makes another cluster a cell with an ID of this cluster. The flags
// are those of the command in addition.
func (f *Fleet) StartCell(ctx context.Context, id string, cell *Fleet, flags ...string) error {
	gateways, err := f.via(id, model.ServiceGateway, f.AgentsGateways())
	if err != nil {
		return err
	}
	args := append([]string{"cell", "--id", id, "--parent", gateways, "--gateway", strings.Join(cell.Gateways(), ","),
		"--dir", filepath.Join(f.config.Dir, id), "--log-level", f.config.LogLevel}, flags...)
	return f.startAgents(ctx, id, id, args, "--listen")
}

// startAgents starts a process of agents. identified is the name in its certificate.
func (f *Fleet) startAgents(ctx context.Context, name, identified string, args []string, listenFlags ...string) error {
	id := identity.Identity{Cluster: Cluster, Role: identity.Agent, Name: identified}
	p, err := f.process(name, id, slices.Concat(args, f.config.Flags["agent"]), listenFlags...)
	if err != nil {
		return err
	}
	f.agents[name] = p
	return f.Restart(ctx, p)
}
