package access

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"gopkg.in/natefinch/lumberjack.v2"
)

// auditFile is the file of an audit log, which it opens at each first line. It follows its name:
// once another program has moved or deleted the file, as logrotate does, the next line goes to
// the file that has the name then.
type auditFile struct {
	lumberjack.Logger
	// special is the file if it is a device or a pipe, which must not be renamed for a rotation.
	special *os.File
	// opened is the file that had the name before the file was opened. If another file gets the
	// name in between, the next line opens that file.
	opened os.FileInfo
}

func openAuditFile(name string) (*auditFile, error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	f := &auditFile{Logger: lumberjack.Logger{Filename: name, MaxSize: auditMiB, MaxBackups: auditFiles}}
	opened, err := file.Stat()
	if err == nil && !opened.Mode().IsRegular() {
		// The reader of a pipe that is closed would end.
		f.special, f.opened = file, opened
		return f, nil
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	return f, nil
}

// Close closes the file until the next line.
func (f *auditFile) Close() error {
	err := f.Logger.Close()
	if f.special != nil {
		err = errors.Join(err, f.special.Close())
		f.special = nil
	}
	return err
}

// Write writes a line.
func (f *auditFile) Write(line []byte) (int, error) {
	var closed error
	named, err := os.Stat(f.Filename)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(named, f.opened) {
		closed = f.Close()
		f.opened = named
	}
	var n int
	if err == nil && !named.Mode().IsRegular() {
		n, err = f.writeSpecial(line)
	} else {
		n, err = f.Logger.Write(line)
	}
	return n, errors.Join(closed, err)
}

// writeSpecial writes a line to a device or a pipe. For a directory, or a pipe without a reader,
// it returns an error.
func (f *auditFile) writeSpecial(line []byte) (int, error) {
	if f.special == nil {
		special, err := os.OpenFile(f.Filename, os.O_APPEND|os.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return 0, err
		}
		f.special = special
	}
	return f.special.Write(line)
}
