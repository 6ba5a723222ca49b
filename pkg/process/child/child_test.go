package child_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"berth.dev/pkg/process"
	"berth.dev/pkg/process/child"
)

// The test binary is also the child, and the parent that is killed.
func TestMain(m *testing.M) {
	switch os.Getenv("CHILD_TEST") {
	case "child":
		beChild()
	case "deaf": // never reports its address
		fmt.Println("deaf")
		select {}
	case "short":
		fmt.Println("no luck today")
		os.Exit(3)
	case "parent":
		beParent()
	}
	goleak.VerifyTestMain(m)
}

// beChild listens, reports its address and ends on SIGTERM. Its client notices the end
// because the connection breaks.
func beChild() {
	flags := flag.NewFlagSet("child", flag.ExitOnError)
	listen := flags.String("listen", "127.0.0.1:0", "")
	file := flags.String("address-file", "", "")
	_ = flags.Parse(os.Args[1:]) // an error ends the process
	terminated := make(chan os.Signal, 1)
	signal.Notify(terminated, syscall.SIGTERM)
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("listening") // printed before the parent can find and kill the child
	text, _ := json.Marshal(process.Addresses{Listen: l.Addr().String()})
	if err := errors.Join(os.WriteFile(*file+".new", text, 0o600), os.Rename(*file+".new", *file)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(conn, "hello")
			defer conn.Close()
		}
	}()
	<-terminated
	fmt.Println("terminated")
	os.Exit(0)
}

// beParent starts a child, prints its address, and waits to be killed.
func beParent() {
	p := child.New("child", os.Args[0], os.Args[1], []string{"CHILD_TEST=child"})
	if err := p.Start(context.Background(), "--listen"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(p.Addresses().Listen)
	select {}
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func newChild(t *testing.T, mode string) *child.Process {
	p := child.New("c", os.Args[0], t.TempDir(), []string{"CHILD_TEST=" + mode})
	t.Cleanup(p.Kill)
	return p
}

func log(t *testing.T, p *child.Process) string {
	t.Helper()
	text, err := os.ReadFile(p.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestRestartKeepsTheAddress(t *testing.T) {
	p := newChild(t, "child")
	if err := p.Start(within(t), "--listen"); err != nil {
		t.Fatal(err)
	}
	address, pid := p.Addresses().Listen, p.Pid()
	if address == "" || pid == 0 || !p.Running() {
		t.Fatalf("address %q, pid %d, running %v", address, pid, p.Running())
	}
	if err := p.Start(within(t), "--listen"); err == nil || p.Pid() != pid {
		t.Errorf("a running child was started again: %v", err)
	}
	p.Kill()
	if p.Running() {
		t.Error("the child runs after a kill")
	}
	p.Kill() // a second kill does nothing
	if err := p.Start(within(t), "--listen"); err != nil {
		t.Fatal(err)
	}
	if now := p.Addresses().Listen; now != address || p.Pid() == pid {
		t.Errorf("at %s with pid %d now, after %s and %d", now, p.Pid(), address, pid)
	}
	if err := p.Stop(within(t)); err != nil {
		t.Fatal(err)
	}
	if text := log(t, p); text != "listening\nlistening\nterminated\n" {
		t.Errorf("log %q", text)
	}
}

func TestNeverStarted(t *testing.T) {
	p := newChild(t, "child")
	p.Kill()
	if err := p.Stop(within(t)); err != nil {
		t.Error(err)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal: %v", err)
	}
	if p.Running() || p.Pid() != 0 || p.Ended() != nil {
		t.Error("a child that was never started is reported as running")
	}
}

func TestEndsWhileItStarts(t *testing.T) {
	p := newChild(t, "short")
	err := p.Start(within(t), "--listen")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), p.LogFile()) {
		t.Errorf("error %v", err)
	}
	if text := log(t, p); text != "no luck today\n" {
		t.Errorf("log %q", text)
	}
}

func TestChildThatReportsNoAddress(t *testing.T) {
	p := newChild(t, "deaf")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Start(ctx, "--listen"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	if p.Running() {
		t.Error("the child was left running")
	}
}

func TestNoSuchBinary(t *testing.T) {
	p := child.New("c", "/does/not/exist", t.TempDir(), nil)
	if err := p.Start(within(t)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v", err)
	}
	p.Kill()
}

// A child does not outlive its parent, however the parent ends.
func TestDiesWithItsParent(t *testing.T) {
	parent := exec.Command(os.Args[0], t.TempDir())
	parent.Env = append(os.Environ(), "CHILD_TEST=parent")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	deadline, _ := within(t).Deadline()
	conn.SetDeadline(deadline)
	reader := bufio.NewReader(conn)
	if hello, err := reader.ReadString('\n'); err != nil {
		t.Fatal(hello, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // the error only states that the parent was killed
	if _, err := reader.ReadByte(); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the child survived its parent: %v", err)
	}
}
