package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"berth.dev/pkg/model"
)

// journal stores tombstones in a file with one JSON line for each. It appends and syncs
// lines, and rewrites the file when most lines are obsolete. A nil journal stores
// nothing; an agent without a directory uses it.
//
// A full disk breaks no promise: the journal reserves space for the ends of running
// workers. If the write of a line fails, the next line overwrites it.
type journal struct {
	path  string
	file  *os.File
	lines int
	// end is the offset of the next line. The journal ignores the bytes after it.
	end int64
	// reserved is the size up to which the file has disk space.
	reserved int64
}

// maxLine is an upper bound of the length of a line in bytes: two names of at most 128
// bytes each, or the ID of a volume, and the other fields.
const maxLine = 512

// line is a tombstone in the file.
type line struct {
	Job    string `json:"job"`
	Stage  string `json:"stage"`
	Index  int32  `json:"index"`
	Number int32  `json:"number"`
	Epoch  int64  `json:"epoch"`
	Volume string `json:"volume,omitempty"`
	// NeverStarted and Acknowledged have the same meaning as in tombstone.
	NeverStarted bool      `json:"neverStarted,omitempty"`
	Acknowledged bool      `json:"acknowledged,omitempty"`
	At           time.Time `json:"at"`
}

// openJournal reads the tombstones, oldest first. It drops the first line that a crash
// cut off and every line after it: the agent never confirmed any of them.
func openJournal(dir string) (*journal, []tombstone, error) {
	j := &journal{path: filepath.Join(dir, "tombstones")}
	file, err := os.OpenFile(j.path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return j, nil, j.rewrite(nil)
	}
	if err != nil {
		return nil, nil, err
	}
	j.file = file
	tombstones, err := j.read()
	// A crash may have left lines that were not synced. They are promises from now on, so
	// they must be durable.
	if err = errors.Join(err, file.Sync()); err != nil {
		return nil, nil, fmt.Errorf("tombstones: %w", errors.Join(err, j.close()))
	}
	return j, tombstones, nil
}

// read reads the lines before the first incomplete one, and sets j.end to the end of the
// last line that it read.
func (j *journal) read() ([]tombstone, error) {
	var tombstones []tombstone
	for in := bufio.NewReader(j.file); ; {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var l line
		if err != nil || json.Unmarshal(text, &l) != nil || l.Volume != "" && !model.ValidName(l.Volume, model.MaxVolumeID) {
			return tombstones, nil
		}
		worker := model.Worker{Job: l.Job, Stage: l.Stage, ID: model.WorkerID{Index: l.Index, Number: l.Number}}
		tombstones = append(tombstones, tombstone{identity{worker, l.Epoch}, l.Volume, l.NeverStarted, l.Acknowledged, l.At})
		j.lines++
		j.end += int64(len(text))
	}
}

// append makes one tombstone durable. others contains all other tombstones: append needs
// them if it rewrites the file.
func (j *journal) append(t tombstone, others []tombstone) error {
	return j.appendAll([]tombstone{t}, others)
}

// appendAll is like append for several tombstones. After a failure or a crash, the first
// ones may be durable.
func (j *journal) appendAll(added, others []tombstone) error {
	if j == nil {
		return nil
	}
	if j.lines > 2*len(others)+tombstoneCount && j.file != nil {
		// If the disk has no space for another file, the journal continues with the current
		// file.
		_ = j.rewrite(others)
	}
	if err := j.ensure(others); err != nil {
		return err
	}
	var text []byte
	for _, t := range added {
		text = append(text, t.line()...)
	}
	if _, err := j.file.WriteAt(text, j.end); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.lines += len(added)
	j.end += int64(len(text))
	return nil
}

// reserve reserves disk space for n more lines, so that a full disk cannot prevent their
// writes. If the file system cannot reserve space, reserve succeeds and a full disk makes
// the write fail.
func (j *journal) reserve(n int, tombstones []tombstone) error {
	if j == nil {
		return nil
	}
	if err := j.ensure(tombstones); err != nil {
		return err
	}
	need := j.end + int64(n)*maxLine
	if need <= j.reserved {
		return nil
	}
	if err := allocate(j.file, need); err != nil {
		return err
	}
	j.reserved = need
	return nil
}

// allocate reserves disk space for the first size bytes of a file. It does not change the
// length of the file.
func allocate(file *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
		switch err {
		case unix.EINTR:
		case unix.EOPNOTSUPP, unix.ENOSYS:
			return nil
		default:
			return err
		}
	}
}

// ensure opens the file with the given tombstones if it is not open.
func (j *journal) ensure(tombstones []tombstone) error {
	if j.file != nil {
		return nil
	}
	return j.rewrite(tombstones)
}

// rewrite replaces the file atomically. The new file has as much reserved space as the
// old file. A failure before the rename leaves the old file unchanged.
func (j *journal) rewrite(tombstones []tombstone) error {
	next, err := j.renewed(tombstones)
	if err == nil {
		err = os.Rename(next.newPath(), j.path)
	}
	if err != nil {
		return fmt.Errorf("tombstones: %w", errors.Join(err, next.close()))
	}
	if j.file != nil {
		_ = j.file.Close() // The rename has replaced this file.
	}
	*j = next
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		// After a crash either the old or the new file could exist. The next call rewrites the
		// file.
		return fmt.Errorf("tombstones: %w", errors.Join(err, j.close()))
	}
	return nil
}

// renewed writes the tombstones to a new file and syncs it.
func (j *journal) renewed(tombstones []tombstone) (next journal, err error) {
	next = journal{path: j.path, lines: len(tombstones)}
	if next.file, err = os.OpenFile(j.newPath(), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o640); err != nil {
		return next, err
	}
	var text []byte
	for _, t := range tombstones {
		text = append(text, t.line()...)
	}
	if _, err := next.file.Write(text); err != nil {
		return next, err
	}
	next.end = int64(len(text))
	if ahead := j.reserved - j.end; ahead > 0 {
		next.reserved = next.end + ahead
		if err := allocate(next.file, next.reserved); err != nil {
			return next, err
		}
	}
	return next, next.file.Sync()
}

func (j *journal) newPath() string { return j.path + ".new" }

func (j *journal) close() error {
	if j == nil || j.file == nil {
		return nil
	}
	file := j.file
	j.file = nil
	return file.Close()
}

func (t tombstone) line() []byte {
	// A struct of strings, numbers and a time always marshals.
	text, _ := json.Marshal(line{t.Job, t.Stage, t.ID.Index, t.ID.Number, t.Epoch, t.Volume, t.NeverStarted,
		t.Acknowledged, t.At})
	return append(text, '\n')
}

// syncDir makes the preceding renames in the directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
