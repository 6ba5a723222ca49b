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

// journal keeps tombstones on disk: a file of one JSON line each, appended and
// synced, and written afresh when most of it is outdated. A nil journal keeps
// nothing, for agents without a directory.
//
// A full disk costs no promise that was given: room for the lines to come is
// taken ahead, and a line that fails is written again in its place.
type journal struct {
	path  string
	file  *os.File
	lines int
	// end is where the next line goes. Behind it is nothing that counts.
	end int64
	// taken is how far the file has room on disk.
	taken int64
}

const (
	// maxLine is more than any line has: two names of 128 bytes and the rest.
	maxLine = 512
	// takeAtOnce is the room that is taken at a time, where it is to be had.
	takeAtOnce = 64 << 10
)

// line is a tombstone as it stands in the file.
type line struct {
	Job    string    `json:"job"`
	Stage  string    `json:"stage"`
	Index  int32     `json:"index"`
	Number int32     `json:"number"`
	Epoch  int64     `json:"epoch"`
	At     time.Time `json:"at"`
}

// openJournal reads the tombstones, oldest first. What follows a line that was
// cut off by a crash was never confirmed to anyone, and is dropped.
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
	kept, err := j.read()
	// What a crash has left unsynced is promised again from now on.
	if err = errors.Join(err, file.Sync()); err != nil {
		return nil, nil, fmt.Errorf("tombstones: %w", errors.Join(err, j.close()))
	}
	return j, kept, nil
}

// read reads the lines up to the first that is none, and ends there.
func (j *journal) read() ([]tombstone, error) {
	var kept []tombstone
	for in := bufio.NewReader(j.file); ; {
		text, err := in.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		var l line
		if err != nil || json.Unmarshal(text, &l) != nil {
			return kept, nil
		}
		worker := model.Worker{Job: l.Job, Stage: l.Stage, ID: model.WorkerID{Index: l.Index, Number: l.Number}}
		kept = append(kept, tombstone{identity{worker, l.Epoch}, l.At})
		j.lines++
		j.end += int64(len(text))
	}
}

// append makes one tombstone durable. kept are all the others, should the file
// be due for a rewrite.
func (j *journal) append(t tombstone, kept []tombstone) error {
	if j == nil {
		return nil
	}
	if j.lines > 2*len(kept)+tombstoneCount && j.file != nil {
		// Without room for another file this one goes on.
		_ = j.rewrite(kept)
	}
	if err := j.ensure(kept); err != nil {
		return err
	}
	text := t.line()
	if _, err := j.file.WriteAt(text, j.end); err != nil {
		return err
	}
	if err := j.file.Sync(); err != nil {
		return err
	}
	j.lines++
	j.end += int64(len(text))
	return nil
}

// reserve takes room on disk for n more lines, so that no full disk keeps them
// from being written. File systems that take none ahead are left to show it when
// it comes to that.
func (j *journal) reserve(n int, kept []tombstone) error {
	if j == nil {
		return nil
	}
	if err := j.ensure(kept); err != nil {
		return err
	}
	need := j.end + int64(n)*maxLine
	if need <= j.taken {
		return nil
	}
	err := take(j.file, max(need, j.taken+takeAtOnce))
	if err == nil {
		j.taken = max(need, j.taken+takeAtOnce)
	} else if err = take(j.file, need); err == nil {
		j.taken = need
	}
	return err
}

// take has the file system set room aside for the first size bytes of a file,
// which stays as long as it is.
func take(file *os.File, size int64) error {
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

// ensure has a file that can be written.
func (j *journal) ensure(kept []tombstone) error {
	if j.file != nil {
		return nil
	}
	return j.rewrite(kept)
}

// rewrite puts a new file in place as a whole, with as much room ahead as the
// old one has. Up to the exchange a failure leaves the old one as it was.
func (j *journal) rewrite(kept []tombstone) error {
	next, err := j.renewed(kept)
	if err == nil {
		err = os.Rename(next.newPath(), j.path)
	}
	if err != nil {
		return fmt.Errorf("tombstones: %w", errors.Join(err, next.close()))
	}
	if j.file != nil {
		_ = j.file.Close() // Nobody reads it any more.
	}
	*j = next
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		// Which of the two a crash would leave is open: it is written once more.
		return fmt.Errorf("tombstones: %w", errors.Join(err, j.close()))
	}
	return nil
}

// renewed writes the file that is to follow this one.
func (j *journal) renewed(kept []tombstone) (next journal, err error) {
	next = journal{path: j.path, lines: len(kept)}
	if next.file, err = os.OpenFile(j.newPath(), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o640); err != nil {
		return next, err
	}
	buffer := bufio.NewWriter(next.file)
	for _, t := range kept {
		n, err := buffer.Write(t.line())
		if err != nil {
			return next, err
		}
		next.end += int64(n)
	}
	if err := buffer.Flush(); err != nil {
		return next, err
	}
	if ahead := j.taken - j.end; ahead > 0 {
		next.taken = next.end + ahead
		if err := take(next.file, next.taken); err != nil {
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
	text, _ := json.Marshal(line{t.Job, t.Stage, t.ID.Index, t.ID.Number, t.Epoch, t.At})
	return append(text, '\n')
}

// syncDir makes a rename in the directory durable.
func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
