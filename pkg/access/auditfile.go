package access

import (
	"errors"
	"io/fs"
	"os"

	"gopkg.in/natefinch/lumberjack.v2"
)

// auditFile is the file of an audit log, which it opens at each first line. It follows its name:
// once another program has moved or deleted the file, as logrotate does, the next line goes to
// the file that has the name then.
type auditFile struct {
	lumberjack.Logger
	// opened is the file that had the name before the file was opened. If another file gets the
	// name in between, the next line opens that file.
	opened os.FileInfo
}

func openAuditFile(name string) (*auditFile, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return nil, err
	}
	return &auditFile{Logger: lumberjack.Logger{Filename: name, MaxSize: auditMiB, MaxBackups: auditFiles}}, nil
}

// Write writes a line.
func (f *auditFile) Write(line []byte) (int, error) {
	var closed error
	named, err := os.Stat(f.Filename)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(named, f.opened) {
		closed = f.Close()
		f.opened = named
	}
	n, err := f.Logger.Write(line)
	return n, errors.Join(closed, err)
}
