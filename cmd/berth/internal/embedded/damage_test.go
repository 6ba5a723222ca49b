package embedded

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/storage/datadir"

	"berth.dev/api/fault"
)

const written = 300

// stopped returns the data directory of a stopped server.
func stopped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	e, err := Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	c := dial(t, e)
	for i := range written {
		if _, err := c.Put(t.Context(), fmt.Sprintf("key%03d", i), strings.Repeat("v", 1000)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func dial(t *testing.T, e *Etcd) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{e.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// restart starts a server with a damaged copy of the data.
func restart(t *testing.T, data string, damage func(dir string)) error {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	damage(filepath.Join(dir, DataDir))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	e, err := Start(ctx, dir)
	if err != nil {
		return err
	}
	defer e.Close()
	c := dial(t, e)
	if _, err := c.Put(ctx, "new", "value"); err != nil {
		t.Errorf("a write to a server that started: %v", err)
	}
	got, err := c.Get(ctx, "", clientv3.WithFromKey(), clientv3.WithCountOnly())
	if err != nil || got.Count != written+1 {
		t.Errorf("a server that started has %v keys, %v; want %d", got, err, written+1)
	}
	return nil
}

func logFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(datadir.ToWALDir(dir), "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	return files[0]
}

func truncate(t *testing.T, file string, size int64) {
	t.Helper()
	if err := os.Truncate(file, size); err != nil {
		t.Fatal(err)
	}
}

func TestTheErrorNamesATruncatedFile(t *testing.T) {
	data := stopped(t)
	for _, size := range []int64{0, 1, 8, 100, 4096, 8192, 12288, 50_000, 100_000, 200_000} {
		t.Run(fmt.Sprint("log cut to ", size), func(t *testing.T) {
			err := restart(t, data, func(dir string) { truncate(t, logFile(t, dir), size) })
			rejected(t, err, filepath.Join("member", "wal"))
		})
		t.Run(fmt.Sprint("database cut to ", size), func(t *testing.T) {
			err := restart(t, data, func(dir string) { truncate(t, datadir.ToBackendFileName(dir), size) })
			rejected(t, err, filepath.Join("member", "snap", "db"))
		})
	}
	t.Run("log deleted", func(t *testing.T) {
		err := restart(t, data, func(dir string) {
			if err := os.RemoveAll(datadir.ToWALDir(dir)); err != nil {
				t.Fatal(err)
			}
		})
		rejected(t, err, filepath.Join("member", "wal"))
	})
	t.Run("log without its last entry", func(t *testing.T) {
		err := restart(t, data, func(dir string) { truncate(t, logFile(t, dir), endOfData(t, logFile(t, dir))-500) })
		rejected(t, err, filepath.Join("member", "wal"))
	})
	t.Run("log with other bytes", func(t *testing.T) {
		err := restart(t, data, func(dir string) {
			file, err := os.OpenFile(logFile(t, dir), os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if _, err := file.WriteAt([]byte("other"), 100_000); err != nil {
				t.Fatal(err)
			}
		})
		rejected(t, err, filepath.Join("member", "wal"))
	})
	t.Run("database with other bytes", func(t *testing.T) {
		err := restart(t, data, func(dir string) {
			content, err := os.ReadFile(datadir.ToBackendFileName(dir))
			if err != nil {
				t.Fatal(err)
			}
			for i := 2 * os.Getpagesize(); i < len(content); i++ {
				content[i] = 0xff
			}
			if err := os.WriteFile(datadir.ToBackendFileName(dir), content, 0o600); err != nil {
				t.Fatal(err)
			}
		})
		rejected(t, err, filepath.Join("member", "snap", "db"))
	})
}

func TestEtcdStartsWithUndamagedFiles(t *testing.T) {
	data := stopped(t)
	for name, damage := range map[string]func(dir string){
		"as they were": func(string) {},
		"log without the space after its last entry": func(dir string) {
			truncate(t, logFile(t, dir), endOfData(t, logFile(t, dir)))
		},
		// The last record is not an entry. etcd repairs it after a crash.
		"log with half of its last record": func(dir string) {
			truncate(t, logFile(t, dir), endOfData(t, logFile(t, dir))-1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := restart(t, data, damage); err != nil {
				t.Error(err)
			}
		})
	}
}

// rejected checks that err names the file and suggests an action.
func rejected(t *testing.T, err error, file string) {
	t.Helper()
	if err == nil {
		t.Fatal("etcd started")
	}
	for _, want := range []string{file, "restore a backup", "delete"} {
		if !strings.Contains(fault.Of(err).Message, want) {
			t.Errorf("got %v, want an error that contains %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "goroutine") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error has more than one line: %v", err)
	}
}

// endOfData returns the offset of the space that etcd has preallocated, a multiple of 8.
func endOfData(t *testing.T, file string) int64 {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return int64(len(strings.TrimRight(string(content), "\x00"))+7) / 8 * 8
}
