package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// compress compresses a file, without a name and a time.
func compress(content []byte) ([]byte, error) {
	var out bytes.Buffer
	err := writeGz(&out, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
	return out.Bytes(), err
}

func writeGz(out io.Writer, write func(io.Writer) error) error {
	w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := write(w); err != nil {
		return err
	}
	return w.Close()
}

// tarGz writes a compressed archive of a directory. The names in the archive begin with
// root.
func (r release) tarGz(file, root, dir string) error {
	return create(file, func(out io.Writer) error {
		return writeGz(out, func(w io.Writer) error { return r.tar(w, root, dir) })
	})
}

// create creates a file.
func create(file string, write func(io.Writer) error) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		f.Close() //nolint:errcheck // the first error counts
		return err
	}
	return f.Close()
}

// tar writes an archive of a directory: sorted names, the date of the release, and root
// as the owner.
func (r release) tar(out io.Writer, root, dir string) error {
	w := tar.NewWriter(out)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: path.Join(root, filepath.ToSlash(below)), Mode: int64(mode(info)), ModTime: r.date}
		if entry.IsDir() {
			if header.Name == "." {
				return nil
			}
			header.Typeflag, header.Name = tar.TypeDir, header.Name+"/"
			return w.WriteHeader(header)
		}
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		in, err := os.Open(file) //nolint:gosec // nobody else writes to the directory
		if err != nil {
			return err
		}
		defer in.Close() //nolint:errcheck // the file is only read
		_, err = io.Copy(w, in)
		return err
	})
	if err != nil {
		return err
	}
	return w.Close()
}
