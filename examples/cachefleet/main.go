// Cachefleet keeps the newest snapshots of a search service loaded on a fleet of cache nodes. A
// snapshot is a file in the directory objects of -dir, which stands for an object store. Berth
// has the state of all requests, so you can kill each process at any time. The commands are:
//
//	cachefleet                  show a fleet of three nodes with 30 snapshots
//	cachefleet manage           request replicas, and publish which of them are live
//	cachefleet search           list the live replicas
//	cachefleet restore FROM TO  load the snapshots FROM to TO for a limited time
//	cachefleet recover FROM TO  write the lines FROM to TO of the file log to new snapshots
//	cachefleet load, index      what the workers on the nodes execute
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"berth.dev/client"
	"berth.dev/examples/security"
)

var (
	gateway  = flag.String("gateway", cmp.Or(os.Getenv("BERTH_GATEWAY"), "127.0.0.1:8080"), "address of a gateway")
	dir      = flag.String("dir", filepath.Join(os.Getenv("HOME"), "cachefleet"), "directory of the program and its files")
	replicas = flag.Int("replicas", 1, "number of replicas of each snapshot")
	retain   = flag.Duration("retention", 24*time.Hour, "age up to which snapshots are loaded; they are deleted 6h later")
	restored = flag.Duration("restore", time.Hour, "time for which a restored snapshot is live")
	timeout  = flag.Duration("start-timeout", 2*time.Minute, "maximum time to load a snapshot")
	restarts = flag.Int("max-restarts", 5, "number of times in a row that a failing worker is started again")
)

func main() {
	flag.Parse()
	log.SetFlags(log.Ltime)
	*dir = must(filepath.Abs(*dir))
	ctx := context.Background()
	switch command := flag.Arg(0); command {
	case "":
		show()
	case "manage":
		manage(ctx)
	case "search":
		search()
	case "restore":
		restore(ctx, flag.Arg(1), flag.Arg(2))
	case "recover":
		recoverLines(ctx, number(1), number(2))
	case "load":
		load(flag.Arg(1))
	case "index":
		index(number(1), number(2), flag.Arg(3))
	default:
		log.Fatalf("unknown command %q", command)
	}
}

// load copies an object to this node, reports that it can be searched, and serves it until Berth
// stops this worker. Without an object there is nothing to do, which is no failure.
func load(object string) {
	source, err := os.Open(object)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	loaded := must(os.Create("snapshot")) // in the directory of this worker
	if must(io.Copy(loaded, must(source, err))) == 0 {
		log.Fatalf("%s is empty", object)
	}
	check(loaded.Close())
	stopped, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	check(os.WriteFile(os.Getenv("BERTH_READY_PIPE"), []byte("ready\n"), 0))
	<-stopped.Done()
}

// index writes lines of the log to an object, or none if there are no lines. It may run again.
func index(from, to int, name string) {
	all := bytes.SplitAfter(must(os.ReadFile(in("log"))), []byte("\n"))
	if text := bytes.Join(all[min(from, len(all)):min(to, len(all))], nil); len(text) > 0 {
		replace(in("objects", name), text, 0o644)
	}
}

// show runs a fleet on this machine until it is stopped. It restarts processes that are killed.
func show() {
	ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	check(os.MkdirAll(in("objects"), 0o755))
	for i := range 30 {
		hour := time.Now().UTC().Truncate(time.Hour).Add(time.Duration(-i) * time.Hour)
		object := in("objects", hour.Format("2006-01-02T15"))
		replace(object, fmt.Appendf(nil, "the log of the hour from %s\n", hour), 0o644)
		check(os.Chtimes(object, hour, hour))
	}
	program := in("cachefleet") // go run deletes its own program, but workers may outlive it
	replace(program, must(os.ReadFile(must(os.Executable()))), 0o755)
	manager := []string{program, "-dir", *dir}
	flag.Visit(func(f *flag.Flag) { manager = append(manager, "-"+f.Name+"="+f.Value.String()) })
	processes := map[string][]string{"manager": append(manager, "manage")}
	for _, node := range []string{"node-a", "node-b", "node-c"} {
		processes[node] = []string{"berth", "agent", "--id", node, "--dir", in(node), "--listen", "127.0.0.1:0",
			"--sku", sku, "--resources", "slots=10", "--reserved", restoration + ":slots=2", "--reserved", recovery + ":slots=1",
			"--starts", "2", "--allow", program, "--stop-workers", "--log-level", "warn"}
	}
	var running sync.WaitGroup
	for name, command := range processes {
		running.Go(func() {
			for ctx.Err() == nil {
				cmd := exec.CommandContext(ctx, command[0], command[1:]...)
				cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
				cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C reaches only this program
				cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
				check(cmd.Start())
				log.Printf("%s is process %d", name, cmd.Process.Pid)
				if err := cmd.Wait(); ctx.Err() == nil {
					log.Printf("%s ended: %v", name, err)
					time.Sleep(2 * time.Second)
				}
			}
		})
	}
	running.Wait()
}

func dial() *client.Client {
	repeated := client.WithOnRetry(func(err error) { log.Print(err) })
	return must(client.Dial([]string{*gateway}, append(must(security.Options()), repeated)...))
}

// in returns the path of a file in -dir.
func in(names ...string) string { return filepath.Join(append([]string{*dir}, names...)...) }

// replace writes a file as a whole or not at all. A file whose name begins with a dot is no object.
func replace(path string, text []byte, mode os.FileMode) {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path))
	check(os.WriteFile(next, text, mode))
	check(os.Rename(next, path))
}

func number(arg int) int { return must(strconv.Atoi(flag.Arg(arg))) }

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
