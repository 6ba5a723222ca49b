package restore

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/process/port/porttest"
)

// A backup of an etcd that refuses connections, or takes them and is silent,
// ends with an error that names the endpoint, and leaves no file.
func TestBackupOfASilentEtcdEnds(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	go func() {
		for {
			c, err := silent.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, c)
		}
	}()
	for name, endpoint := range map[string]string{"refused": porttest.Hold(t), "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := backupCommand()
			cmd.SetArgs([]string{filepath.Join(dir, "backup"), "--etcd-endpoints", endpoint, "--timeout", "100ms"})
			cmd.SetOut(io.Discard)
			cmd.SetErr(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if f := fault.Of(err); f == nil || f.Kind != fault.Unavailable || !strings.Contains(f.Message, endpoint+" within 100ms") {
				t.Errorf("%v", err)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// heard keeps a transfer alive that takes longer than the silence allowed.
func TestABackupThatGoesOnIsNotSilent(t *testing.T) {
	fired := make(chan struct{})
	timer := time.AfterFunc(time.Hour, func() { close(fired) })
	timer.Stop()
	h := &heard{strings.NewReader("x"), timer, time.Millisecond}
	if n, _ := h.Read(make([]byte, 1)); n != 1 {
		t.Fatal("nothing was read")
	}
	<-fired // the timer runs again
}
