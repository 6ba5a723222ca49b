package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
)

// programs selects the program of each process. Each process has its own symbolic link to
// the new or the old program.
type programs struct {
	dir, new, old string
}

// of returns the program of a process. If there is an old program, half of the processes
// begin with it.
func (p programs) of(name string) string {
	if p.old == "" {
		return p.new
	}
	if err := p.point(name, beginsOld(name)); err != nil {
		return err.Error() // not an existing path: the start fails with an error that contains this text
	}
	return p.link(name)
}

// beginsOld reports whether a process begins with the old program. That is every second
// process of each kind, except members of etcd, which Berth does not upgrade.
func beginsOld(name string) bool {
	at := strings.LastIndex(name, "-")
	n, err := strconv.Atoi(name[at+1:])
	return err == nil && n%2 == 0 && !strings.HasPrefix(name, "etcd-")
}

func (p programs) link(name string) string { return filepath.Join(p.dir, name+".program") }

// point selects the old or the new program of a process.
func (p programs) point(name string, old bool) error {
	program := p.new
	if old {
		program = p.old
	}
	fresh := p.link(name) + ".next"
	if err := os.Symlink(program, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, p.link(name))
}

// replace restarts processes with another program, one after another, in the documented
// order: the agents first, and the registry, which accepts requests, last. With the old
// program the order is the opposite. Of each service, it restarts the standbys before the
// leader. It waits until each process is ready.
func (i *injector) replace(ctx context.Context, chosen func(name string) bool, old bool) error {
	kinds := []string{"agents", model.ServiceExecutorState, model.ServiceAssigner, model.ServiceGateway,
		model.ServiceRegistry}
	if old {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		for _, p := range i.inOrder(ctx, kind) {
			if !chosen(p.Name) {
				continue
			}
			if err := i.replaceOne(ctx, p, old); err != nil {
				return fmt.Errorf("%s: %w", p.Name, err)
			}
		}
	}
	return nil
}

// inOrder returns the processes of a kind. The leader, if it is known, is the last.
func (i *injector) inOrder(ctx context.Context, kind string) []*child.Process {
	processes := slices.Clone(i.fleet.Processes()[kind])
	leader, _ := i.name(ctx, kind+"/leader")
	slices.SortFunc(processes, func(a, b *child.Process) int {
		switch {
		case a.Name == leader:
			return 1
		case b.Name == leader:
			return -1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return processes
}

func (i *injector) replaceOne(ctx context.Context, p *child.Process, old bool) error {
	if err := until(ctx, func(context.Context) string {
		if !i.take(p) {
			return "the process always had another fault"
		}
		return ""
	}); err != nil {
		return err
	}
	defer i.release(p)
	if err := i.programs.point(p.Name, old); err != nil {
		return err
	}
	stop, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := p.Stop(stop); err != nil {
		return err
	}
	if err := i.restart(ctx, p); err != nil || i.fleet.Agent(p.Name) != nil {
		return err // agents have no readiness
	}
	return until(ctx, func(ctx context.Context) string { return unready(ctx, i.fleet, p) })
}

// unready returns the reason why a replica or gateway is not ready, or an empty string if
// it is ready.
func unready(ctx context.Context, f *fleet.Fleet, p *child.Process) string {
	scheme, web := "http://", http.DefaultClient
	if security := f.ClientTLS(identity.Service | identity.Gateway); security != nil {
		scheme, web = "https://", &http.Client{Transport: &http.Transport{TLSClientConfig: security}}
		defer web.CloseIdleConnections()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+p.Addresses().HTTP+"/readyz", nil)
	if err != nil {
		return err.Error()
	}
	answer, err := web.Do(request)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return answer.Status
	}
	return ""
}
