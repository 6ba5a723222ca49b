package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The files of a worker's directory, and what each of them proves:
//
//	worker.json  the worker to run. Written by the agent; parts that may be secret are
//	             removed when the worker ends.
//	work         the worker's own directory, which only its user can read. The other files
//	             belong to the agent's user.
//	payload-…    the payload of the task, until the worker ends. It belongs to the worker's
//	             user.
//	gang.json    the members of its gang, until the worker ends. It belongs to the worker's
//	             user, and is replaced when they change.
//	claim        written once: by the keeper before it starts the process, or by an
//	             agent so that no keeper starts the process any more.
//	process      the process runs. Written by the keeper.
//	ready        the worker has reported that it is ready. Written by the keeper.
//	stopping     the worker was signalled to stop.
//	late         it was signalled because it was not ready in time.
//	exit         the process has exited, with this result. Written by the keeper.
//	forgotten    the control plane has acknowledged the end: only the logs still matter.
//	events       a named pipe whose writing end is open while the keeper runs. A byte
//	             means that the state on disk has changed.
//	control      a named pipe from which the keeper reads stop requests and signals.
//	readiness    a named pipe to which the worker writes a line when it is ready. It belongs
//	             to the worker's user, and exists only with readiness REPORTED.
//	stdout, …    the worker's output, the older files numbered. Written by the keeper.
//	rotation-…   the position of the newest file in the output. Written by the keeper.
//	keeper       the keeper's own errors.
const (
	fileWorker    = "worker.json"
	fileClaim     = "claim"
	fileProcess   = "process"
	fileReady     = "ready"
	fileStopping  = "stopping"
	fileLate      = "late"
	fileExit      = "exit"
	fileForgotten = "forgotten"
	pipeEvents    = "events"
	pipeControl   = "control"
	pipeReadiness = "readiness"
	fileStdout    = "stdout"
	fileStderr    = "stderr"
	fileKeeper    = "keeper"
	filePayload   = "payload"
	fileGang      = "gang.json"
	dirWork       = "work"
)

// plan is the content of worker.json. It describes the process that the keeper starts.
type plan struct {
	Spec Spec
	// Path, Env and Dir are the program, environment and working directory of the process.
	Path string
	Env  []string
	Dir  string
	// User is the user of the process.
	User user `json:",omitzero"`
	// Payload is the name of the payload's file, which cannot be guessed. It is empty if the
	// task has no payload.
	Payload string `json:",omitempty"`
	// Log limits the size of the output files.
	Log logLimit
	// Signals is set if the keeper accepts signals, unlike one of version 0.1.
	Signals bool `json:",omitempty"`
}

// verdict is the content of the file exit.
type verdict struct {
	// NotStarted is the reason why the process never ran. It is empty if the process ran.
	NotStarted string `json:",omitempty"`
	// BadTask is set if the task is that reason.
	BadTask bool `json:",omitempty"`
	Code    int32
	// Signal is the number of the signal that killed the process, or 0.
	Signal  int32 `json:",omitempty"`
	Stopped bool  `json:",omitempty"`
}

// verdictSize is an upper bound of the length of a verdict in bytes.
const verdictSize = 4096

// reserveVerdict reserves disk space for the verdict before the process runs, so that a
// full disk cannot lose the exit code.
func reserveVerdict() error {
	return os.WriteFile(fileExit+".new", bytes.Repeat([]byte{' '}, verdictSize), 0o640)
}

// writeVerdict writes the verdict into the reserved space.
func writeVerdict(v verdict) error {
	if err := overwrite(fileExit+".new", v, verdictSize); err != nil {
		return err
	}
	return os.Rename(fileExit+".new", fileExit)
}

func workerPath(root string, id identity) string {
	return filepath.Join(root, "workers", id.Job, fmt.Sprintf("%s.%d.%d.%d", id.Stage, id.ID.Index, id.ID.Number,
		id.Epoch))
}

// prepare writes the files and pipes of a worker's directory. It writes worker.json last.
func prepare(dir string, p plan) error {
	work := filepath.Join(dir, dirWork)
	if err := errors.Join(os.Mkdir(work, 0o700), p.User.own(work)); err != nil {
		return err
	}
	if p.Spec.Payload != nil {
		path := filepath.Join(dir, p.Payload)
		if err := errors.Join(writeNew(path, p.Spec.Payload), p.User.own(path)); err != nil {
			return err
		}
		p.Spec.Payload = nil
	}
	if p.Spec.Members != nil {
		if err := writeMembers(dir, p.User, p.Spec.Members); err != nil {
			return err
		}
	}
	for _, pipe := range []string{pipeEvents, pipeControl} {
		if err := unix.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			return err
		}
	}
	if p.Spec.loads() {
		// The file is created now and renamed later, so that a full disk does not prevent it.
		if err := mark(dir, fileReady+".new"); err != nil {
			return err
		}
		pipe := filepath.Join(dir, pipeReadiness)
		if err := errors.Join(unix.Mkfifo(pipe, 0o600), p.User.own(pipe)); err != nil {
			return err
		}
	}
	path := filepath.Join(dir, fileWorker)
	if err := writeJSON(path, p); err != nil || p.Spec.Volume.ID == "" {
		return err
	}
	// The agent must know after a crash of the host that the worker may have used its volume.
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	job := filepath.Dir(dir)
	workers := filepath.Dir(job)
	return errors.Join(file.Sync(), file.Close(), syncDir(dir), syncDir(job), syncDir(workers),
		syncDir(filepath.Dir(workers)))
}

// writeNew writes a new file that only its owner may read.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// writeMembers writes or replaces the members of a worker's gang. A reader sees the old or the
// new text. The file need not survive a crash of the host, because no worker survives it.
func writeMembers(dir string, u user, text []byte) error {
	path := filepath.Join(dir, fileGang)
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := errors.Join(writeNew(path+".new", text), u.own(path+".new")); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return os.Rename(path+".new", path)
}

// scrub removes the environment, the arguments, the payload and the members of the gang of a
// worker that has ended, because they may be secret. It keeps the worker's identity. It may be called
// again.
func scrub(dir string) error {
	path := filepath.Join(dir, fileWorker)
	old, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p plan
	if err := json.Unmarshal(old, &p); err != nil {
		return err
	}
	var removed error
	for _, name := range []string{fileGang, fileGang + ".new"} {
		if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			removed = errors.Join(removed, err)
		}
	}
	// The names that an agent writes contain no path. The check protects files outside the
	// directory.
	for _, name := range []string{p.Payload, filePayload} {
		if name != "" && filepath.Base(name) == name && strings.HasPrefix(name, filePayload) {
			if err := os.Remove(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
				removed = errors.Join(removed, err)
			}
		}
	}
	if p.Env == nil && p.Spec.Env == nil && p.Spec.Args == nil && p.Spec.Payload == nil {
		return removed
	}
	p.Payload, p.Env, p.Spec.Env, p.Spec.Args, p.Spec.Payload = "", nil, nil, nil, nil
	if err := writeJSON(path, p); err != nil {
		// If the disk is full, scrub overwrites the file in place. The new text is shorter, and
		// JSON allows blanks at the end.
		_ = os.Remove(path + ".new")
		removed = errors.Join(removed, overwrite(path, p, len(old)))
	}
	return removed
}

// overwrite overwrites the first size bytes of a file with the JSON of a value, padded
// with blanks.
func overwrite(path string, v any, size int) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(append(text, bytes.Repeat([]byte{' '}, max(0, size-len(text)))...), 0)
	return errors.Join(err, file.Close())
}

// claim writes the claim of a directory atomically and only once. It returns false if the
// directory already has a claim. A keeper claims with its own process. An agent claims
// with the zero process: then no process was started and none will be.
func claim(dir string, by process) (bool, error) {
	if has(dir, fileClaim) {
		return false, nil // No write is necessary, which would fail on a full disk.
	}
	path := filepath.Join(dir, fileClaim)
	own := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := writeJSON(own, by); err != nil {
		return false, errors.Join(err, os.RemoveAll(own+".new"))
	}
	err := os.Link(own, path)
	if errors.Is(err, os.ErrExist) {
		return false, os.Remove(own)
	}
	return err == nil, errors.Join(err, os.Remove(own))
}

// writeJSON writes a file atomically. It does not make the file durable: no process of a
// worker survives a crash of the host.
func writeJSON(path string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func readJSON(path string, v any) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// mark writes an empty file.
func mark(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), nil, 0o640)
}

func has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
