package agent

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
)

// exitFile is the room for the verdict, taken before the process runs: a full
// disk must not lose how it ended.
type exitFile struct{ file *os.File }

func reserveExit() (exitFile, error) {
	file, err := os.OpenFile(fileExit+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o640)
	if err != nil {
		return exitFile{}, err
	}
	if _, err := file.WriteString(strings.Repeat(" ", 4096)); err != nil {
		return exitFile{}, errors.Join(err, file.Close())
	}
	return exitFile{file}, nil
}

// write puts the verdict in its place. The blanks that follow it are no harm to
// JSON.
func (x exitFile) write(v verdict) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := x.file.WriteAt(text, 0); err != nil {
		return err
	}
	if err := x.file.Close(); err != nil {
		return err
	}
	return os.Rename(fileExit+".new", fileExit)
}
