package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"

	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// ownerFile is the name of the file that says to which executor and cluster a directory
// belongs.
const ownerFile = "identity.json"

// owner is the executor to which a directory belongs: the secret, the tombstones and the
// workers in the directory are those of this executor. An agent with another ID would adopt
// workers that its cluster does not know under that ID, and stop them.
type owner struct {
	Executor string `json:"executor"`
	// Cluster is the name of the cluster in which the executor is registered. It is empty until
	// the first registration, and if the control plane is older than the field.
	Cluster string `json:"cluster,omitempty"`
}

// openOwner checks that the directory belongs to the executor, or to none yet, and returns its
// owner from now on. It changes nothing in the directory of another executor. If the disk is
// full, the next agent records the owner.
func openOwner(dir, id string, log *slog.Logger) (owner, error) {
	path := filepath.Join(dir, ownerFile)
	own, err := readOwner(dir)
	switch {
	case err != nil:
		return owner{}, err
	case own.Executor == "":
		if own.Executor, err = ownerOfWorkers(dir); err != nil {
			return owner{}, err
		}
	case own.Executor == id:
		return own, nil
	}
	if own.Executor != "" && own.Executor != id {
		return owner{}, fault.New(fault.Precondition, fault.ReasonOtherAgent,
			"the directory %s belongs to the executor %q, so an agent with the ID %q must not use it: nothing was stopped; "+
				"start the agent with --id %s, or use another directory; to give the directory to %q, drain %q, wait until its "+
				"workers have ended, stop its agent, and delete %s", dir, own.Executor, id, own.Executor, id, own.Executor, path)
	}
	own.Executor = id
	if err := writeOwner(dir, own); err != nil {
		log.Warn("the owner of the directory is not recorded", "file", path, "error", err)
	}
	return own, nil
}

// readOwner returns the owner that the directory names, or the zero owner if it names none.
func readOwner(dir string) (own owner, err error) {
	path := filepath.Join(dir, ownerFile)
	switch err := readJSON(path, &own); {
	case errors.Is(err, fs.ErrNotExist):
		return owner{}, nil
	case err != nil:
		return owner{}, fmt.Errorf("%s cannot be read; if you are sure that the directory belongs to this executor, delete the file: %w",
			path, err)
	case !model.ValidName(own.Executor, maxExecutorID):
		return owner{}, fmt.Errorf("%s: %q is not an executor ID; if you are sure that the directory belongs to this executor, delete the file",
			path, own.Executor)
	}
	return own, nil
}

// ownerOfWorkers returns the executor of the workers that run in the directory of an agent that
// wrote no owner, or "" if none runs: then another agent can stop nothing.
func ownerOfWorkers(dir string) (string, error) {
	dirs, err := filepath.Glob(filepath.Join(dir, "workers", "*", "*"))
	if err != nil {
		return "", err
	}
	for _, worker := range dirs {
		var keeper process
		if has(worker, fileForgotten) || readJSON(filepath.Join(worker, fileClaim), &keeper) != nil {
			continue
		}
		var p plan
		if _, runs := keeper.stat(); runs && readJSON(filepath.Join(worker, fileWorker), &p) == nil && p.Spec.Executor != "" {
			return p.Spec.Executor, nil
		}
	}
	return "", nil
}

func writeOwner(dir string, own owner) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	return writeDurably(filepath.Join(dir, ownerFile), string(text))
}

// keepCluster records the cluster in which the executor is registered. If the disk is full,
// a later registration records it. a.mu must be locked.
func (a *Agent) keepCluster(cluster string) {
	if a.cfg.Dir == "" || cluster == "" || a.owner.Cluster != "" {
		return
	}
	own := a.owner
	own.Cluster = cluster
	if err := writeOwner(a.cfg.Dir, own); err != nil {
		a.log.Warn("the name of the cluster is not recorded", "file", ownerFile, "error", err)
		return
	}
	a.owner = own
}

// otherCluster returns the error for an agent whose gateways belong to another cluster than
// its directory.
func (a *Agent) otherCluster(err error) error {
	return fault.New(fault.Precondition, fault.ReasonOtherCluster,
		"the directory %s belongs to the executor %q of the cluster %q, and the gateways belong to another one: nothing was "+
			"stopped; correct --gateways, or use another directory; to give the directory to the other cluster, wait until its "+
			"workers have ended, stop its agent, and delete %s", a.cfg.Dir, a.cfg.ID, a.owner.Cluster,
		filepath.Join(a.cfg.Dir, ownerFile)).Because(err)
}

// ownCluster returns the cluster to which the directory belongs, or "" if it is not known.
func (a *Agent) ownCluster() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.owner.Cluster
}
