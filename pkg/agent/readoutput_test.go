package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	controlv1 "berth.dev/api/berth/control/v1"
	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/wire"
)

// patternAt is the byte at a position of the output of tests.
func patternAt(at int64) byte { return byte(at>>8*7 + at*31) }

func pattern(from, length int64) []byte {
	text := make([]byte, length)
	for i := range text {
		text[i] = patternAt(from + int64(i))
	}
	return text
}

// checkPart returns an error if a part has other data than the pattern.
func checkPart(part *berthv1.ReadOutputAnswer) error {
	for i, b := range part.Data {
		if b != patternAt(part.Offset+int64(i)) {
			return fmt.Errorf("the byte at %d+%d is wrong; end %d", part.Offset, i, part.End)
		}
	}
	return nil
}

func openRoot(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return root
}

// For every sequence of writes and reads, a part has exactly the bytes at its offset. It
// begins later than requested only if the older files were removed.
func TestPartsOfOutputProperty(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	rapid.Check(t, func(t *rapid.T) {
		limit := logLimit{MaxBytes: rapid.Int64Range(8, 50).Draw(t, "size"), Keep: rapid.IntRange(1, 4).Draw(t, "files")}
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			_ = os.Remove(file)
		}
		r, err := openRotated(filepath.Join(dir, fileStdout), limit)
		if err != nil {
			t.Fatal(err)
		}
		defer r.mark.Close()
		var written int64
		t.Repeat(map[string]func(*rapid.T){
			"write": func(t *rapid.T) {
				n := rapid.Int64Range(0, 60).Draw(t, "bytes")
				r.write(pattern(written, n))
				written += n
			},
			"read": func(t *rapid.T) {
				start := position{offset: rapid.Int64Range(0, written+2).Draw(t, "offset")}
				if rapid.Bool().Draw(t, "from the end") {
					start = position{offset: -1, tail: rapid.Int64Range(0, written+2).Draw(t, "tail")}
				}
				want := start.of(written)
				part, err := readOutput(root, fileStdout, start, false)
				if want > written {
					if fault.Of(err).Kind != fault.Invalid {
						t.Fatalf("offset %d of %d: %v", want, written, err)
					}
					return
				}
				if err == nil {
					err = checkPart(part)
				}
				kept := r.size + limit.MaxBytes*min(int64(limit.Keep-1), (written-r.size)/limit.MaxBytes)
				if err != nil || part.End != written || part.Offset != max(want, written-kept) ||
					part.Offset < written && len(part.Data) == 0 {
					t.Fatalf("from %d of %d, kept %d: %d bytes at %d of %d, %v", want, written, kept, len(part.GetData()),
						part.GetOffset(), part.GetEnd(), err)
				}
			},
		})
	})
}

// A reader that follows the output while it is rotated gets each byte at most once and in
// order, and each byte that is still stored.
func TestOutputIsReadDuringRotation(t *testing.T) {
	for _, keep := range []int{1, 2, 5} {
		dir := t.TempDir()
		root := openRoot(t, dir)
		r, err := openRotated(filepath.Join(dir, fileStdout), logLimit{MaxBytes: 4096, Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		const total = 1 << 20
		done := make(chan struct{})
		go func() {
			defer close(done)
			for at := int64(0); at < total; at += 1000 {
				r.write(pattern(at, min(1000, total-at)))
			}
		}()
		var offset, read int64
		for offset < total {
			part, err := readOutput(root, fileStdout, position{offset: offset}, false)
			if fault.Is(err, fault.ReasonOverloaded) {
				continue
			}
			if err == nil {
				err = checkPart(part)
			}
			if err != nil || part.Offset < offset {
				<-done
				t.Fatalf("keep %d: from %d: %v, %v", keep, offset, part.GetOffset(), err)
			}
			offset = part.Offset + int64(len(part.Data))
			read += int64(len(part.Data))
		}
		<-done
		if read == 0 {
			t.Error("nothing was read")
		}
	}
}

// The keeper of an older version writes no rotation: the oldest file begins the output. The
// keeper may also have been killed during a rotation.
func TestOutputWithoutUsableRotation(t *testing.T) {
	dir := t.TempDir()
	root := openRoot(t, dir)
	for name, text := range map[string]string{"stdout.2": "ab", "stdout.1": "cd", "stdout": "e"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	part, err := readOutput(root, fileStdout, position{offset: 3}, false)
	if err != nil || part.Offset != 3 || string(part.Data) != "d" || part.End != 5 {
		t.Errorf("%v, %v", part, err)
	}
	mark := fmt.Sprintf(rotationFormat, 7, 104)
	if err := os.WriteFile(filepath.Join(dir, "rotation-stdout"), []byte(mark), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readOutput(root, fileStdout, position{}, false); !fault.Is(err, fault.ReasonOverloaded) {
		t.Errorf("during a rotation: %v", err)
	}
	part, err = readOutput(root, fileStdout, position{offset: -1, tail: 10}, true)
	if err != nil || part.Offset != 100 || string(part.Data) != "ab" || part.End != 105 {
		t.Errorf("%v, %v", part, err)
	}
}

// outputOf returns a request for the standard output of a worker from its begin.
func outputOf(a *Agent, index int32) *controlv1.ReadWorkerOutputRequest {
	return &controlv1.ReadWorkerOutputRequest{
		Nonce: a.ledger.nonce, Incarnation: 1,
		Request: &berthv1.ReadOutputRequest{Job: "job", Stage: "stage", Index: index, Executor: "host",
			Offset: proto.Int64(0)},
	}
}

// follow reads the output of a worker until it is complete. It calls each with all output
// so far.
func follow(t *testing.T, a *Agent, req *controlv1.ReadWorkerOutputRequest, each func(string)) {
	t.Helper()
	req.Request.Follow = true
	var all strings.Builder
	for {
		part, err := a.ReadOutput(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if part.Offset != int64(all.Len()) || part.Executor != "host" || part.Number != 1 || part.Epoch != 100 {
			t.Fatalf("part %v after %d bytes", part, all.Len())
		}
		all.Write(part.Data)
		each(all.String())
		if part.Complete {
			return
		}
		req.Request.Offset = proto.Int64(part.Offset + int64(len(part.Data)))
		req.Request.Number, req.Request.Epoch = part.Number, part.Epoch
	}
}

// A reader follows the output of a worker to its end. The output stays readable after the
// control plane has acknowledged the end, and for the next agent.
func TestReadOutput(t *testing.T) {
	dir := agentDir(t)
	a, c, stop := processAgent(t, dir)
	gate := newFIFO(t)
	mustSubmit(t, a, submit(0, 1, "sh", "-c", "echo first; read go <"+gate.path+"; printf last; printf oops >&2"))
	opened := false
	check := func(all string) {
		if all == "first\n" && !opened {
			opened = true
			gate.write(t, "go\n")
		}
	}
	var got string
	follow(t, a, outputOf(a, 0), func(all string) { got = all; check(all) })
	if got != "first\nlast" {
		t.Errorf("output %q", got)
	}
	c.awaitState(t, key(0), "COMPLETED")
	awaitFile(t, filepath.Join(dir, "workers", "job", "stage.0.1.100", fileForgotten))
	tail := outputOf(a, 0)
	tail.Request.Offset, tail.Request.Tail = nil, proto.Int32(4)
	part, err := a.ReadOutput(t.Context(), tail)
	if err != nil || string(part.Data) != "last" || !part.Complete || part.Offset != 6 || part.End != 10 {
		t.Errorf("%v, %v", part, err)
	}
	stderr := outputOf(a, 0)
	stderr.Request.Stream, stderr.Request.Offset = berthv1.ReadOutputRequest_STDERR, nil
	if part, err := a.ReadOutput(t.Context(), stderr); err != nil || string(part.Data) != "oops" {
		t.Errorf("%v, %v", part, err)
	}
	stop()
	next, _, _ := processAgent(t, dir)
	if part, err := next.ReadOutput(t.Context(), outputOf(next, 0)); err != nil || string(part.Data) != "first\nlast" ||
		!part.Complete {
		t.Errorf("%v, %v", part, err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "workers", "job")); err != nil {
		t.Fatal(err)
	}
	_, err = next.ReadOutput(t.Context(), outputOf(next, 0))
	if f := fault.Of(err); f.Kind != fault.NotFound || f.Meta["executor"] != "host" {
		t.Errorf("without files: %v", err)
	}
}

// Without a number and an epoch, a request selects the newest worker of an index.
func TestOutputOfTheNewestWorker(t *testing.T) {
	a, _, _ := processAgent(t, agentDir(t))
	job := filepath.Join(a.cfg.Driver.(*Process).workersDir(), "job")
	for _, name := range []string{"stage.1.1.90", "stage.1.2.80", "stage.1.2.79", "stage.1.9", "stage.1.3.x",
		"stage.1.03.1", "stage.1.2.3.4", "stage.11.5.99", "stage.1.-4.100", "stage.1.4.-1"} {
		if err := os.MkdirAll(filepath.Join(job, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(job, name, fileStdout), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		stage  string
		number int32
		epoch  int64
		want   string
	}{
		{"stage", 0, 0, "stage.1.2.80"},
		{"stage", 1, 0, "stage.1.1.90"},
		{"stage", 0, 79, "stage.1.2.79"},
		{"stage.1", 0, 0, ""},
		{"stage", 1, 80, ""},
		{"stage", 5, 0, ""},
	} {
		req := outputOf(a, 1)
		req.Request.Stage, req.Request.Number, req.Request.Epoch = c.stage, c.number, c.epoch
		part, err := a.ReadOutput(t.Context(), req)
		if string(part.GetData()) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%+v: %v, %v", c, part, err)
		}
	}
}

// A worker may replace its files. The agent reads regular files only, never leaves the
// worker's directory, and is never blocked.
func TestReplacedOutputIsNotRead(t *testing.T) {
	dir := agentDir(t)
	a, _, _ := processAgent(t, dir)
	workers := a.cfg.Driver.(*Process).workersDir()
	worker := filepath.Join(workers, "job", "stage.0.1.100")
	other := filepath.Join(workers, "other", "stage.0.1.100")
	secret := filepath.Join(dir, "hidden")
	if err := errors.Join(os.MkdirAll(worker, 0o700), os.MkdirAll(other, 0o700),
		os.WriteFile(secret, []byte("hidden"), 0o600),
		os.WriteFile(filepath.Join(worker, fileWorker), []byte("hidden"), 0o600),
		os.WriteFile(filepath.Join(other, fileStdout), []byte("hidden"), 0o600)); err != nil {
		t.Fatal(err)
	}
	stdout := filepath.Join(worker, fileStdout)
	for name, replace := range map[string]func() error{
		"link out of the directory":    func() error { return os.Symlink(secret, stdout) },
		"link to a file of the worker": func() error { return os.Symlink(fileWorker, stdout) },
		"link to nothing":              func() error { return os.Symlink("nothing", stdout) },
		"pipe":                         func() error { return unix.Mkfifo(stdout, 0o600) },
		"directory":                    func() error { return os.Mkdir(stdout, 0o700) },
		"link as older file": func() error {
			return errors.Join(os.WriteFile(stdout, nil, 0o600), os.Symlink(secret, stdout+".1"))
		},
		"link as rotation": func() error {
			return errors.Join(os.WriteFile(stdout, nil, 0o600), os.Symlink(secret, filepath.Join(worker, "rotation-stdout")))
		},
		"wrong rotation": func() error {
			return errors.Join(os.WriteFile(stdout, []byte("x"), 0o600),
				os.WriteFile(filepath.Join(worker, "rotation-stdout"), []byte(strings.Repeat("x", 40)), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := replace(); err != nil {
				t.Fatal(err)
			}
			for _, offset := range []*int64{nil, proto.Int64(0)} {
				req := outputOf(a, 0)
				req.Request.Offset = offset
				part, err := a.ReadOutput(t.Context(), req)
				if len(part.GetData()) > 0 || err != nil && fault.Of(err).Kind != fault.NotFound ||
					err == nil && name != "link as older file" {
					t.Errorf("%v, %v", part, err)
				}
				if err != nil && strings.Contains(err.Error(), dir) {
					t.Errorf("the error has a path of the host: %v", err)
				}
			}
			for _, left := range []string{stdout, stdout + ".1", filepath.Join(worker, "rotation-stdout")} {
				_ = os.Remove(left)
			}
		})
	}
	if err := errors.Join(os.RemoveAll(worker), os.Symlink("../other/stage.0.1.100", worker)); err != nil {
		t.Fatal(err)
	}
	if part, err := a.ReadOutput(t.Context(), outputOf(a, 0)); err == nil {
		t.Errorf("the directory of another job: %v", part)
	}
}

// Requests without the nonce of the registration, for another incarnation or with invalid
// fields are rejected, and the number of reads is limited.
func TestReadOutputRejects(t *testing.T) {
	a, _, _ := processAgent(t, agentDir(t))
	for name, c := range map[string]struct {
		change func(*controlv1.ReadWorkerOutputRequest)
		reason fault.Reason
		field  string
	}{
		"nonce":       {func(r *controlv1.ReadWorkerOutputRequest) { r.Nonce, r.Request = "x", nil }, fault.ReasonPermissionDenied, ""},
		"incarnation": {func(r *controlv1.ReadWorkerOutputRequest) { r.Incarnation = 2 }, fault.ReasonOtherIncarnation, ""},
		"job":         {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Job = "../job" }, fault.ReasonBadName, "job"},
		"stage":       {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Stage = ".." }, fault.ReasonBadName, "stage"},
		"index":       {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Index = -1 }, fault.ReasonInvalid, "index"},
		"number":      {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Number = -1 }, fault.ReasonInvalid, "number"},
		"epoch":       {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Epoch = -1 }, fault.ReasonInvalid, "epoch"},
		"executor":    {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Executor = "/" }, fault.ReasonBadName, "executor"},
		"stream":      {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Stream = 3 }, fault.ReasonInvalid, "stream"},
		"offset":      {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Offset = proto.Int64(-1) }, fault.ReasonInvalid, "offset"},
		"both":        {func(r *controlv1.ReadWorkerOutputRequest) { r.Request.Tail = proto.Int32(1) }, fault.ReasonInvalid, "offset"},
		"tail": {func(r *controlv1.ReadWorkerOutputRequest) {
			r.Request.Offset, r.Request.Tail = nil, proto.Int32(wire.MaxTail+1)
		}, fault.ReasonInvalid, "tail"},
	} {
		req := outputOf(a, 0)
		c.change(req)
		_, err := a.ReadOutput(t.Context(), req)
		f := fault.Of(err)
		if f.Reason != c.reason || c.field != "" && (len(f.Fields) != 1 || f.Fields[0].Name != c.field) {
			t.Errorf("%s: %v", name, err)
		}
	}
	hold := func(follow bool, most int) {
		var release []func()
		req := outputOf(a, 0)
		req.Request.Follow = follow
		for range most {
			done, err := a.admitRead(req)
			if err != nil {
				t.Fatal(err)
			}
			release = append(release, done)
		}
		if _, err := a.ReadOutput(t.Context(), req); !fault.Is(err, fault.ReasonOverloaded) {
			t.Errorf("with %d reads: %v", most, err)
		}
		req.Request.Follow = false
		if _, err := a.ReadOutput(t.Context(), req); fault.Is(err, fault.ReasonOverloaded) != !follow {
			t.Errorf("with %d reads that follow %v: %v", most, follow, err)
		}
		for _, done := range release {
			done()
		}
		if _, err := a.ReadOutput(t.Context(), req); fault.Of(err).Kind != fault.NotFound {
			t.Errorf("after the reads: %v", err)
		}
	}
	hold(true, maxOutputWaits)
	hold(false, maxOutputReads)
}

func TestSimulatedWorkersHaveNoOutput(t *testing.T) {
	a, _, _ := simulatedAgent(t, newControl(time.Hour), Config{})
	mustSubmit(t, a, submit(0, 1, ""))
	if _, err := a.ReadOutput(t.Context(), outputOf(a, 0)); !fault.Is(err, fault.ReasonUnsupported) {
		t.Error(err)
	}
}

// A read that follows returns without output after OutputWait, at once if the agent is shut
// down, and soon after output arrives: then with the output of one more interval. All reads
// together are paced.
func TestWaitForOutput(t *testing.T) {
	dir := t.TempDir()
	id := identity{Epoch: 100}
	id.Job, id.Stage, id.ID.Number = "job", "stage", 1
	synctest.Test(t, func(t *testing.T) {
		root := openRoot(t, dir)
		a := &Agent{ledger: newLedger("host", "", time.Hour), outputs: newOutputLimiter()}
		a.ledger.entries[id] = &entry{}
		r, err := openRotated(filepath.Join(dir, fileStdout), logLimit{MaxBytes: 1 << 20, Keep: 2})
		if err != nil {
			t.Fatal(err)
		}
		read := func(ctx context.Context) (part *berthv1.ReadOutputAnswer, took time.Duration) {
			t.Helper()
			started := time.Now()
			part, err := a.awaitOutput(ctx, id, root, &berthv1.ReadOutputRequest{Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			return part, time.Since(started)
		}
		if part, took := read(t.Context()); len(part.Data) > 0 || part.Complete || took < wire.OutputWait ||
			took > wire.OutputWait+outputTick {
			t.Errorf("%v after %v", part, took)
		}
		later := time.AfterFunc(time.Second+outputTick/2, func() {
			r.write([]byte("a"))
			time.Sleep(outputTick)
			r.write([]byte("b"))
		})
		defer later.Stop()
		if part, took := read(t.Context()); string(part.Data) != "ab" || took > time.Second+3*outputTick {
			t.Errorf("%v after %v", part, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, took := read(ctx); took > 2*outputTick {
			t.Errorf("output that is there is read after %v", took)
		}
		a.ledger.entries[id].state = 6
		if part, took := read(t.Context()); string(part.Data) != "ab" || !part.Complete || took > 0 {
			t.Errorf("after the end: %v after %v", part, took)
		}
		a.ledger.entries[id].state, a.closed = 1, true
		if _, took := read(t.Context()); took > 0 {
			t.Errorf("during the shutdown: after %v", took)
		}
	})
}
