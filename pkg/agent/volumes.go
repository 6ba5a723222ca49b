package agent

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	controlv1 "berth.dev/api/berth/control/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/model"
)

// dirVolumes is the directory below Config.Dir with a directory for each volume.
const dirVolumes = "volumes"

// Volume is a directory that outlives its workers. The zero value is no volume.
type Volume struct {
	ID string
	// Dir is the absolute path. It is empty for a simulated worker, whose agent has volumes
	// only in memory.
	Dir string

	// create is set if the agent makes the directory if it does not exist.
	create bool
}

// volumeOf returns the volume in a start request. It refuses IDs that must not be part of a
// path.
func (a *Agent) volumeOf(start *controlv1.VolumeStart) (Volume, error) {
	_, simulated := a.cfg.Driver.(Simulated)
	switch {
	case start == nil:
		return Volume{}, nil
	case !model.ValidName(start.GetId(), model.MaxVolumeID):
		return Volume{}, fault.BadField(fault.ReasonBadName, "volume.id", "%.64q is not the ID of a volume", start.GetId())
	case a.volumes != "":
		return Volume{start.GetId(), filepath.Join(a.volumes, start.GetId()), start.GetCreate()}, nil
	case simulated:
		return Volume{ID: start.GetId(), create: start.GetCreate()}, nil
	}
	return Volume{}, badTask("the agent of %s has no directory for volumes", a.cfg.ID)
}

// openVolumes reads which volumes exist, and continues the removals of an earlier agent. An
// error must not become an empty list: then the control plane would give up all volumes.
// a.mu must be locked.
func (a *Agent) openVolumes() error {
	dir, err := filepath.Abs(a.cfg.Dir)
	if err != nil {
		return err
	}
	a.volumes = filepath.Join(dir, dirVolumes)
	entries, err := os.ReadDir(a.volumes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// The earlier agent may have exited before it synced a directory. A list is a promise, so
	// the directories must be durable.
	if err = errors.Join(err, syncDir(a.volumes)); err != nil {
		return err
	}
	var ignored []string
	for _, entry := range entries {
		// A link is no volume: it could be a way out of the agent's directory.
		if model.ValidName(entry.Name(), model.MaxVolumeID) && entry.IsDir() {
			a.ledger.observe(entry.Name(), true)
		} else {
			ignored = append(ignored, entry.Name())
		}
	}
	if len(ignored) > 0 {
		a.log.Warn("ignoring files that are not volumes", "dir", a.volumes, "files", len(ignored), "first", ignored[0])
	}
	if n := a.ledger.existing(); n > model.MaxListedVolumes {
		a.log.Error("too many volumes: only the first ones are listed", "volumes", n, "listed", model.MaxListedVolumes)
	}
	if ids := a.ledger.resume(); len(ids) > 0 {
		a.requests.Go(func() { a.removeVolumes(ids) })
	}
	return nil
}

// openVolume gives a volume its directory before its worker starts. Until the worker has
// ended, the directory cannot be destroyed.
func (a *Agent) openVolume(v Volume) error {
	if v.ID == "" {
		return nil
	}
	exists, err := true, error(nil)
	if v.Dir != "" {
		exists, err = makeVolume(v)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		return startFailed("volume %s: %v", v.ID, err)
	case !exists:
		a.ledger.observe(v.ID, false)
		a.notify()
		return a.ledger.missing(v.ID)
	}
	a.ledger.observe(v.ID, true)
	a.notify() // The list is sent at the latest with the report that the worker runs.
	return nil
}

// makeVolume reports whether a volume has a directory, which it makes durably if v.create is
// set. The result is false for a link: it could be a way out of the agent's directory.
func makeVolume(v Volume) (exists bool, err error) {
	if v.create {
		parent := filepath.Dir(v.Dir)
		if err := os.MkdirAll(parent, 0o750); err != nil {
			return false, err
		}
		if err := os.Mkdir(v.Dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, err
		}
		if err := errors.Join(syncDir(parent), syncDir(filepath.Dir(parent))); err != nil {
			return false, err
		}
	}
	info, err := os.Lstat(v.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

// DropVolumes destroys volumes. After it returns, no worker starts on one of them, also
// after a restart of the agent. The agent then removes the directories, and lists the volumes
// as gone.
func (a *Agent) DropVolumes(_ context.Context, req *controlv1.DropVolumesRequest) (*controlv1.DropVolumesAnswer,
	error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	// The nonce is first, so that a sender without it learns nothing from other errors.
	if err := a.ledger.permit(req.GetNonce()); err != nil {
		return nil, err
	}
	if a.closed {
		return nil, a.errEnding()
	}
	if n := len(req.GetIds()); n > model.MaxDroppedVolumes {
		return nil, fault.BadField(fault.ReasonTooLarge, "ids", "must be at most %d, got %d", model.MaxDroppedVolumes, n)
	}
	for _, id := range req.GetIds() {
		if !model.ValidName(id, model.MaxVolumeID) {
			return nil, fault.BadField(fault.ReasonBadName, "ids", "%.64q is not the ID of a volume", id)
		}
	}
	ids := slices.Clone(req.GetIds())
	slices.Sort(ids)
	ids, err := a.ledger.drop(req.GetTerm(), req.GetIncarnation(), slices.Compact(ids))
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		if err := a.destroyVolumes(ids); err != nil {
			return nil, fault.New(fault.Unavailable, fault.ReasonUnavailable,
				"the destruction of volumes is not durable").Because(err)
		}
		a.requests.Go(func() { a.removeVolumes(ids) })
	}
	return &controlv1.DropVolumesAnswer{}, nil
}

// destroyVolumes makes tombstones of volumes durable. The caller must call removeVolumes.
// a.mu must be locked.
func (a *Agent) destroyVolumes(ids []string) error {
	now := a.cfg.now()
	var tombstones []tombstone
	for _, id := range ids {
		tombstones = append(tombstones, tombstone{Volume: id, At: now})
	}
	// They must not use the disk space that is reserved for the ends of running workers.
	if err := a.journal.reserve(a.ledger.live()+len(ids), a.ledger.tombstones); err != nil {
		return err
	}
	if err := a.journal.appendAll(tombstones, a.ledger.tombstones); err != nil {
		return err
	}
	for _, id := range ids {
		a.ledger.destroy(id, now)
	}
	return nil
}

// removeVolumes removes the directories of destroyed volumes one after the other. It
// retries failures until the agent closes; then the next agent continues.
func (a *Agent) removeVolumes(ids []string) {
	for retry := (pause{first: time.Second, last: 10 * time.Second}); ; retry.wait(a.life) {
		ids = slices.DeleteFunc(ids, func(id string) bool { return a.life.Err() != nil || a.removeVolume(id) })
		if len(ids) == 0 {
			return
		}
	}
}

// removeVolume removes the directory of a destroyed volume, and reports whether it succeeded.
func (a *Agent) removeVolume(id string) bool {
	if a.volumes != "" {
		err := removeTree(a.volumes, id, a.life.Done())
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			a.log.Warn("destroyed volume not removed", "volume", id, "error", err)
			return false
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log.Info("volume destroyed", "volume", id)
	a.ledger.removed(id)
	a.notify()
	return true
}
