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

// The files of a worker's directory. What each of them proves:
//
//	worker.json  the intent: who is to run, and how. Written by the agent; what of it
//	             may be secret goes when the worker ends.
//	payload-…    the payload of the task, until the worker ends.
//	claim        made once: by the keeper before it starts the process, or by
//	             an agent that makes sure none ever will.
//	process      the process runs. Written by the keeper.
//	stopping     the worker was told to end.
//	exit         the process is gone, this is how. Written by the keeper.
//	forgotten    the control plane knows the end: only the logs still matter.
//	events       a named pipe whose writing end the keeper holds while it lives:
//	             a byte says to look, its end says that the keeper is gone.
//	control      a named pipe that the keeper reads its orders from.
//	stdout, …    the worker's output, the older files numbered. Written by the
//	             keeper, as is keeper: what it says of its own troubles.
const (
	fileWorker    = "worker.json"
	fileClaim     = "claim"
	fileProcess   = "process"
	fileStopping  = "stopping"
	fileExit      = "exit"
	fileForgotten = "forgotten"
	pipeEvents    = "events"
	pipeControl   = "control"
	fileStdout    = "stdout"
	fileStderr    = "stderr"
	fileKeeper    = "keeper"
	filePayload   = "payload"
)

// plan is worker.json: what the keeper is to start, with nothing left to decide.
type plan struct {
	Spec Spec
	// Path, Env and Dir are those of the process.
	Path string
	Env  []string
	Dir  string
	// Payload is the name of the payload's file, which nobody can guess; empty without.
	Payload string `json:",omitempty"`
	// Log bounds its output.
	Log logLimit
}

// verdict is exit.
type verdict struct {
	// NotStarted says why the process never ran, empty when it did.
	NotStarted string `json:",omitempty"`
	Code       int32
	// Signal is the number of the signal that ended it, 0 for none.
	Signal  int32 `json:",omitempty"`
	Stopped bool  `json:",omitempty"`
}

func workerPath(root string, id identity) string {
	return filepath.Join(root, "workers", id.Job, fmt.Sprintf("%s.%d.%d.%d", id.Stage, id.ID.Index, id.ID.Number, id.Epoch))
}

// prepare fills the directory of a worker, the intent last.
func prepare(dir string, p plan) error {
	if p.Spec.Payload != nil {
		if err := writeNew(filepath.Join(dir, p.Payload), p.Spec.Payload); err != nil {
			return err
		}
		p.Spec.Payload = nil
	}
	for _, pipe := range []string{pipeEvents, pipeControl} {
		if err := unix.Mkfifo(filepath.Join(dir, pipe), 0o600); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, fileWorker), p)
}

// writeNew makes a file that its owner alone may read.
func writeNew(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o400)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	return errors.Join(err, file.Close())
}

// scrub removes from the directory of a worker that has ended what may be secret: its
// environment, arguments and payload. Who it was stays. It may be repeated.
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
	// A name with a path in it is none that an agent gave.
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
		// Without room for another file this one is written over: what is left of it
		// is shorter, and blanks are no harm to JSON.
		_ = os.Remove(path + ".new")
		removed = errors.Join(removed, overwrite(path, p, len(old)))
	}
	return removed
}

// overwrite puts a value in the place of a file of a size, and blanks behind it.
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

// claim makes the claim of a directory, whole and once in its life. It answers
// false if it was made before. A keeper claims by its name, an agent by none:
// then nothing was started, and nothing will be.
func claim(dir string, by process) (bool, error) {
	if has(dir, fileClaim) {
		return false, nil // Without a write, for which there may be no room.
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

// writeJSON puts a file in place as a whole. It need not outlive the host: no
// process does.
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

// mark makes an empty file.
func mark(dir, name string) error {
	return os.WriteFile(filepath.Join(dir, name), nil, 0o640)
}

func has(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
