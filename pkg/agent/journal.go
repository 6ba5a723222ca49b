package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth.dev/pkg/model"
)

// journal keeps tombstones on disk: a file of one JSON line each, appended and
// synced, and written afresh when most of it is outdated. A nil journal keeps
// nothing, for agents without a directory.
type journal struct {
	path  string
	file  *os.File
	lines int
}

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
	var kept []tombstone
	file, err := os.Open(j.path)
	if err == nil {
		defer file.Close()
		for scan := bufio.NewScanner(file); scan.Scan(); {
			var l line
			if json.Unmarshal(scan.Bytes(), &l) != nil {
				break
			}
			worker := model.Worker{Job: l.Job, Stage: l.Stage, Seat: model.Seat{Index: l.Index, Number: l.Number}}
			kept = append(kept, tombstone{identity{worker, l.Epoch}, l.At})
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	return j, kept, j.rewrite(kept)
}

// append makes one tombstone durable. kept are all of them, with it or without,
// should the file be due for a rewrite.
func (j *journal) append(t tombstone, kept []tombstone) error {
	if j == nil {
		return nil
	}
	if j.file == nil || j.lines > 2*len(kept)+tombstoneCount {
		if err := j.rewrite(kept); err != nil {
			return err
		}
	}
	if _, err := j.file.Write(t.line()); err != nil {
		// Half a line would hide those after it: the file is written afresh.
		return errors.Join(err, j.close())
	}
	j.lines++
	return j.file.Sync()
}

// rewrite puts the file in place as a whole. After a failure the next append
// tries again.
func (j *journal) rewrite(kept []tombstone) (err error) {
	if err := j.close(); err != nil {
		return err
	}
	file, err := os.OpenFile(j.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("tombstones: %w", errors.Join(err, file.Close()))
		}
	}()
	buffer := bufio.NewWriter(file)
	for _, t := range kept {
		if _, err := buffer.Write(t.line()); err != nil {
			return err
		}
	}
	if err := buffer.Flush(); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(j.path+".new", j.path); err != nil {
		return err
	}
	if err := syncDir(filepath.Dir(j.path)); err != nil {
		return err
	}
	j.file, j.lines = file, len(kept)
	return nil
}

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
	text, _ := json.Marshal(line{t.Job, t.Stage, t.Seat.Index, t.Seat.Number, t.Epoch, t.At})
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
