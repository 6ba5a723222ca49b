package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"berth.dev/testkit/porttest"
)

// fileSizes returns the sizes of the files in dir whose names start with prefix.
func fileSizes(t *testing.T, dir, prefix string) map[string]int64 {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]int64{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes[filepath.Base(path)] = info.Size()
	}
	return sizes
}

// The output of a worker goes to files whose size and number are limited. From the oldest
// to the newest file, the output is in order.
func TestOutputIsRotated(t *testing.T) {
	for _, keep := range []int{1, 3} {
		name := filepath.Join(t.TempDir(), "stdout")
		r, err := openRotated(name, logLimit{MaxBytes: 10, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		var all []byte
		for n := range 50 {
			part := bytes.Repeat([]byte{byte('a' + n%26)}, n%25)
			all = append(all, part...)
			r.write(part)
		}
		var kept []byte
		for n := keep - 1; n >= 0; n-- {
			text, err := os.ReadFile(r.numbered(n))
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 10 || n > 0 && len(text) < 10 {
				t.Errorf("%d bytes in file %d", len(text), n)
			}
			kept = append(kept, text...)
		}
		if !bytes.HasSuffix(all, kept) || len(kept) == 0 {
			t.Errorf("kept %q of %q", kept, all)
		}
		if sizes := fileSizes(t, filepath.Dir(name), "stdout"); len(sizes) != keep {
			t.Error(sizes)
		}
	}
}

// tinyDisk returns a file system of the given size. Only the test writes to it.
func tinyDisk(t *testing.T, size int) string {
	t.Helper()
	dir := agentDir(t)
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		t.Skipf("a disk that fills up has to be mounted, which only root may: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses all free space, up to the last byte. It returns a function that frees the
// space.
func fill(t *testing.T, dir string) func() {
	t.Helper()
	path := filepath.Join(dir, "fill")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for block := make([]byte, 4096); err == nil; {
		_, err = file.Write(block)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// If the disk is full, only output is lost. The file states how many bytes were lost.
func TestOutputOnAFullDisk(t *testing.T) {
	dir := tinyDisk(t, 1<<20)
	r, err := openRotated(filepath.Join(dir, "stdout"), logLimit{MaxBytes: 64 << 10, Keep: 2})
	if err != nil {
		t.Fatal(err)
	}
	r.write([]byte("before\n"))
	empty := fill(t, dir)
	r.write(bytes.Repeat([]byte{'x'}, 8192)) // some bytes still fit in the last block of the file
	lost := r.lost
	if lost == 0 {
		t.Fatal("the disk is not full")
	}
	empty()
	r.write([]byte("after\n"))
	text, err := os.ReadFile(r.name)
	want := fmt.Sprintf("\nberth: %d bytes are missing here: the disk was full\nafter\n", lost)
	if err != nil || !strings.HasPrefix(string(text), "before\nx") || !strings.HasSuffix(string(text), want) {
		t.Errorf("%q, %v", text, err)
	}
}

// While no agent runs, the output of a worker stays limited, even if the worker never ends
// a line.
func TestOutputWithoutAgent(t *testing.T) {
	dir := agentDir(t)
	c := newControl(50 * time.Millisecond)
	gateway, _ := c.serve(t, porttest.Hold(t))
	f, gate := newFIFO(t), newFIFO(t)
	executor, kill := startChild(t, c, dir, gateway)
	c.registered(t, "host", 1)
	order := submit(0, 1, "sh", "-c", `echo first; echo ready >`+f.path+`; read go <`+gate.path+`
		head -c 5000000 /dev/zero | tr '\0' x; echo half >`+f.path+`; read go <`+gate.path+`; printf last; printf oops >&2`)
	if _, err := executor.SubmitTask(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	f.line(t)
	kill()
	gate.write(t, "go\n")
	f.line(t)
	worker := filepath.Join(dir, "workers", "job", "stage.0.1.100")
	// A writer can be ahead of its files by at most the size of the pipe, but never by a whole
	// file.
	for name, size := range fileSizes(t, worker, fileStdout) {
		if size > childLogBytes {
			t.Errorf("%s has %d bytes", name, size)
		}
	}
	gate.write(t, "go\n")
	awaitFile(t, filepath.Join(worker, fileExit))
	sizes := fileSizes(t, worker, fileStdout)
	if len(sizes) != childLogKeep || sizes["stdout.1"] != childLogBytes || sizes["stdout.2"] != childLogBytes {
		t.Error(sizes)
	}
	text, err := os.ReadFile(filepath.Join(worker, fileStdout))
	if err != nil || !strings.HasSuffix(string(text), "xlast") {
		t.Errorf("%.20q, %v", text, err)
	}
	if text, err := os.ReadFile(filepath.Join(worker, fileStderr)); err != nil || string(text) != "oops" {
		t.Errorf("%q, %v", text, err)
	}
	startChild(t, c, dir, gateway)
	c.awaitState(t, key(0), "COMPLETED")
}

// The directories of ended workers are kept up to limits of their number, size and age. The
// limits also hold after a restart.
func TestEndedWorkersAreRemoved(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		cfg  ProcessConfig
		want []string
	}{
		"number": {ProcessConfig{EndedKeep: 2}, []string{"2", "3"}},
		"bytes":  {ProcessConfig{EndedMaxBytes: 250}, []string{"2", "3"}},
		"age":    {ProcessConfig{EndedMaxAge: 150 * time.Minute}, []string{"2", "3"}},
		"none":   {ProcessConfig{}, []string{"0", "1", "2", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir, c.cfg.Log = agentDir(t), quiet()
			job := filepath.Join(c.cfg.Dir, "workers", "job")
			worker := func(name string) string {
				dir := filepath.Join(job, name)
				if err := os.MkdirAll(dir, 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, fileStdout), bytes.Repeat([]byte{'x'}, 100), 0o640); err != nil {
					t.Fatal(err)
				}
				if err := mark(dir, fileForgotten); err != nil {
					t.Fatal(err)
				}
				return dir
			}
			left := func() (names []string) {
				entries, err := os.ReadDir(job)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					names = append(names, e.Name())
				}
				return names
			}
			p, err := NewProcess(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 4 {
				since := now.Add(time.Duration(n-4) * time.Hour)
				dir := worker(fmt.Sprint(n))
				if err := os.Chtimes(dir, since, since); err != nil {
					t.Fatal(err)
				}
				p.retire(dir, since)
			}
			if got := left(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("files left: %v, want %v", got, c.want)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			next, err := NewProcess(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 4 { // the removed directories are created again
				dir := worker(fmt.Sprint(n))
				since := now.Add(time.Duration(n-4) * time.Hour)
				if err := os.Chtimes(dir, since, since); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := next.Adopt(nil, nil); err != nil {
				t.Fatal(err)
			}
			if got := left(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("files left after a restart: %v, want %v", got, c.want)
			}
			if err := next.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A worker may pass its output pipe to a process outside the worker. The end of the worker
// is reported in time even if that process keeps the pipe open.
func TestProcessPipeHeldOutsideTheWorker(t *testing.T) {
	t.Parallel() // most of its time it only waits
	a, c, _ := processAgent(t, agentDir(t))
	f, gate := newFIFO(t), newFIFO(t)
	req := submit(0, 1, "sh", "-c", "echo $$ >"+f.path+"; read go <"+gate.path+"; echo done")
	mustSubmit(t, a, req)
	// The test's own process is the process outside the worker.
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", f.pid(t)), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	gate.write(t, "go\n")
	c.awaitState(t, key(0), "COMPLETED")
	if _, err := io.WriteString(held, "too late"); err == nil {
		t.Error("the pipe still has a reader")
	}
}
