package proxy

import (
	"bufio"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"berth.dev/cmd/berth/fleet/wiring"
	"berth.dev/testkit/porttest"
)

// silence is the time for which a cut link is observed.
const silence = 50 * time.Millisecond

// echo starts a server that returns every line and records it.
func echo(t *testing.T) (address string, heard <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	lines := make(chan string, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					c.Write([]byte(line)) //nolint:errcheck // a failed write is visible to the reader
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

// end is the client side of a connection through a link.
type end struct {
	*testing.T
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, links *Links, from, to, address string) *end {
	t.Helper()
	via, err := links.Via(from, to, address)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", via)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &end{t, c, bufio.NewReader(c)}
}

func (e *end) say(line string) {
	e.Helper()
	if _, err := e.Write([]byte(line + "\n")); err != nil {
		e.Fatal(err)
	}
}

func (e *end) hear(line string) {
	e.Helper()
	e.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := e.in.ReadString('\n'); err != nil || got != line+"\n" {
		e.Fatalf("received %q, %v, want %q", got, err, line)
	}
}

func (e *end) hearNothing() {
	e.Helper()
	e.SetReadDeadline(time.Now().Add(silence))
	if got, err := e.in.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		e.Fatalf("received %q, %v over a cut link", got, err)
	}
}

func only(from, to string) func(string, string) bool {
	return func(x, y string) bool { return x == from && y == to }
}

// A cut direction delivers nothing. When it is open again, it delivers the pending data.
func TestCutLinks(t *testing.T) {
	address, heard := echo(t)
	links := New()
	defer links.Close()
	cut, whole := dial(t, links, "a", "b", address), dial(t, links, "c", "b", address)
	cut.say("one")
	cut.hear("one")
	if <-heard != "one\n" {
		t.Fatal("received an unexpected line")
	}

	if n := links.Set(only("a", "b"), wiring.Condition{There: true}); n != 1 {
		t.Fatalf("%d links were changed", n)
	}
	cut.say("two")
	cut.hearNothing()
	select {
	case line := <-heard:
		t.Fatalf("%q arrived", line)
	default:
	}
	whole.say("other")
	whole.hear("other")
	<-heard
	links.Set(only("a", "b"), wiring.Condition{})
	cut.hear("two")
	<-heard

	links.Set(only("a", "b"), wiring.Condition{Back: true})
	cut.say("three")
	if got := <-heard; got != "three\n" {
		t.Fatalf("received %q", got)
	}
	cut.hearNothing()
	links.Set(only("a", "b"), wiring.Condition{})
	cut.hear("three")
}

// A lossy link resets connections. A slow link delays data.
func TestLossyAndSlowLinks(t *testing.T) {
	address, _ := echo(t)
	links := New()
	defer links.Close()
	c := dial(t, links, "a", "b", address)
	const delay = 30 * time.Millisecond
	links.Set(only("a", "b"), wiring.Condition{Delay: delay})
	began := time.Now()
	c.say("slow")
	c.hear("slow")
	if took := time.Since(began); took < 2*delay {
		t.Errorf("the round trip took %v", took)
	}
	links.Set(only("a", "b"), wiring.Condition{Loss: 1})
	c.say("lost")
	if _, err := c.in.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

// A link that refuses resets its connections and accepts no new ones. Afterwards the link
// works again at the same address.
func TestRefusedLinks(t *testing.T) {
	address, _ := echo(t)
	links := New()
	defer links.Close()
	c := dial(t, links, "a", "b", address)
	c.say("one")
	c.hear("one")
	for range 3 {
		links.Set(only("a", "b"), wiring.Condition{Refused: true})
		if _, err := c.in.ReadString('\n'); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ended with %v", err)
		}
		via, err := links.Via("a", "b", address)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := net.Dial("tcp", via); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("new connection: %v", err)
		}
		links.Set(only("a", "b"), wiring.Condition{})
		c = dial(t, links, "a", "b", address)
		c.say("two")
		c.hear("two")
	}
}

// If the target of a link does not listen, the connection is reset.
func TestLinkWithoutListener(t *testing.T) {
	links := New()
	defer links.Close()
	via, err := links.Via("a", "b", porttest.Hold(t))
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", via)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v", err)
	}
}

// Close also ends the connections over cut links.
func TestCloseOfCutLinks(t *testing.T) {
	address, heard := echo(t)
	links := New()
	c := dial(t, links, "a", "b", address)
	c.say("one")
	<-heard
	links.Set(only("a", "b"), wiring.Condition{There: true, Back: true})
	c.say("two")
	links.Close()
}
