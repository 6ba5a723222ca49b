package reload_test

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"berth.dev/pkg/reload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) await(text string) {
	for {
		o.mu.Lock()
		found := strings.Contains(o.text.String(), text)
		o.mu.Unlock()
		if found {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A changed file is used. An invalid or a missing file is logged, and what was valid stays in
// use until the file is valid again.
func TestFilesAreReadAgain(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	used := make(chan string, 10)
	log := &output{}
	stop, err := reload.Watch(slog.New(slog.NewTextHandler(log, nil)), "the file", []string{name},
		func(contents [][]byte) error {
			if string(contents[0]) == "bad" {
				return errors.New("a bad file")
			}
			used <- string(contents[0])
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	expect := func(want string) {
		t.Helper()
		if got := <-used; got != want {
			t.Errorf("used %q, want %q", got, want)
		}
	}
	expect("one")
	write("two")
	expect("two")
	write("bad")
	log.await("a bad file")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	log.await("cannot read ")
	write("three")
	expect("three")
}

// A content that only one read returns is not used: the file may be half written.
func TestHalfWrittenFilesAreNotUsed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	synctest.Test(t, func(t *testing.T) {
		var used []string
		next := func(text string) {
			t.Helper()
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(reload.Interval) // until the next read
			synctest.Wait()             // for the end of the read
		}
		if err := os.WriteFile(name, []byte("first"), 0o600); err != nil {
			t.Fatal(err)
		}
		stop, err := reload.Watch(slog.New(slog.DiscardHandler), "the file", []string{name}, func(contents [][]byte) error {
			used = append(used, string(contents[0]))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		for _, text := range []string{"first", "", "sec", "second", "second", "second"} {
			next(text)
		}
		if want := []string{"first", "second"}; !slices.Equal(used, want) {
			t.Errorf("used %q, want %q", used, want)
		}
	})
}

func TestTheFirstReadMustSucceed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	use := func([][]byte) error { return errors.New("a bad file") }
	if _, err := reload.Watch(slog.Default(), "the file", []string{name}, use); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reload.Watch(slog.Default(), "the file", []string{name}, use); err == nil ||
		err.Error() != "a bad file" {
		t.Errorf("a bad file: %v", err)
	}
}

// Now reads files at once and uses them after one read, also if they have not changed. An invalid
// content or a missing file changes nothing.
func TestFilesAreReadOnRequest(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	synctest.Test(t, func(t *testing.T) {
		var used []string
		log := &output{}
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		now := func() {
			reload.Now()
			synctest.Wait()
		}
		write("one")
		stop, err := reload.Watch(slog.New(slog.NewTextHandler(log, nil)), "the file", []string{name},
			func(contents [][]byte) error {
				if string(contents[0]) == "bad" {
					return errors.New("a bad file")
				}
				used = append(used, string(contents[0]))
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		forget := reload.OnNow(func() { calls++ })
		start := time.Now()
		now()
		write("two")
		now()
		write("bad")
		now()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		now()
		write("three")
		now()
		if elapsed := time.Since(start); elapsed != 0 {
			t.Errorf("the reads took %v", elapsed)
		}
		time.Sleep(3 * reload.Interval)
		synctest.Wait()
		if want := []string{"one", "one", "two", "three"}; !slices.Equal(used, want) || calls != 5 {
			t.Errorf("used %q, want %q; %d calls, want 5", used, want, calls)
		}
		forget()
		stop()
		reload.Now()
		if calls != 5 {
			t.Error("a function is called after forget")
		}
		if text := log.text.String(); strings.Count(text, "level=INFO") != 3 || !strings.Contains(text, "a bad file") ||
			!strings.Contains(text, "cannot read the file") {
			t.Errorf("log: %s", text)
		}
	})
}
