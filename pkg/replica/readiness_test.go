package replica

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/store"
	"berth.dev/testkit/etcdtest"
	"berth.dev/testkit/porttest"
)

// lockedBuffer is a buffer of log lines that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(text)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// A replica that is not ready says why, and logs one line for each change.
func TestReadinessNamesTheReason(t *testing.T) {
	unused := porttest.Hold(t)
	broken, err := store.Dial(store.DialConfig{Endpoints: []string{unused}})
	if err != nil {
		t.Fatal(err)
	}
	defer broken.Close()
	var current atomic.Bool
	var reach atomic.Pointer[store.Etcd]
	reach.Store(broken)
	var expired atomic.Pointer[fault.Error]
	r := &readiness{current: current.Load, leads: func() bool { return false }, etcd: unused,
		check: func(ctx context.Context) error { return reach.Load().Check(ctx, "k") },
		expired: func() error {
			if err := expired.Load(); err != nil {
				return err
			}
			return nil
		}}
	await := func(want string) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			got := ""
			if err := r.probe(); err != nil {
				got = err.Error()
			}
			if strings.Contains(got, want) && (want != "") == (got != "") {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	await("etcd at " + unused + " has not answered yet")
	ctx, stop := context.WithCancel(t.Context())
	log, ended := &lockedBuffer{}, make(chan struct{})
	go func() {
		defer close(ended)
		r.watch(ctx, slog.New(slog.NewTextHandler(log, nil))) //nolint:errcheck // it returns nil
	}()
	refused := "the view of etcd is not current: etcd does not answer: " + unused + " (connection refused)"
	await(refused)
	if want := "etcd does not answer: " + unused + " (connection refused)"; r.lacks() != want {
		t.Errorf("it lacks %q, want %q", r.lacks(), want)
	}
	reach.Store(etcdtest.Start(t).Store(t))
	await("are being read")
	current.Store(true)
	await("")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(log.String(), "msg=ready"); {
		if time.Now().After(deadline) {
			t.Fatalf("no line says that the replica is ready: %s", log)
		}
		time.Sleep(time.Millisecond)
	}
	if lacks := r.lacks(); lacks != "" {
		t.Errorf("it lacks %q", lacks)
	}
	expired.Store(fault.New(fault.Unavailable, fault.ReasonUnavailable, "the certificate expired"))
	await("the certificate expired")
	if lacks := r.lacks(); lacks != "the certificate expired" {
		t.Errorf("it lacks %q", lacks)
	}
	expired.Store(nil)
	await("")
	stop()
	<-ended
	if n := strings.Count(log.String(), "connection refused"); n != 1 {
		t.Errorf("%d lines: %s", n, log)
	}
}
