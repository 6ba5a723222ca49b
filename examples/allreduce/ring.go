package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"time"
)

// gang is the content of BERTH_GANG_FILE.
type gang struct {
	Workers int      `json:"workers"`
	Version string   `json:"version"`
	Members []member `json:"members"`
}

type member struct {
	Index  int32  `json:"index"`
	Number int32  `json:"number"`
	Host   string `json:"host"`
}

// readGang reads the file. The agent replaces it atomically, so the text is always whole.
func readGang(file string) (g gang) {
	if err := json.Unmarshal(must(os.ReadFile(file)), &g); err != nil {
		log.Fatal(err)
	}
	return g
}

// pollEvery is how often a worker reads the file.
const pollEvery = 50 * time.Millisecond

// work takes part in rings until the process ends. Each version of the gang has its own ring.
func work(file string, index int32) {
	listener := listen(*port + int(index))
	for {
		g := readGang(file)
		if len(g.Members) < g.Workers {
			time.Sleep(pollEvery) // a worker is being replaced
			continue
		}
		ctx, leave := context.WithCancelCause(context.Background())
		go leaveOnChange(ctx, leave, file, g.Version)
		if err := takePart(ctx, listener, g, index); err != nil && ctx.Err() == nil {
			// A neighbor has died or has left for a newer version. The file will say so.
			fmt.Println("the ring broke:", err)
			time.Sleep(pollEvery)
		}
		leave(nil)
	}
}

// listen opens a port. The worker that this one replaces may still have it.
func listen(port int) *net.TCPListener {
	for {
		l, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err == nil {
			return l.(*net.TCPListener)
		}
		fmt.Println(err)
		time.Sleep(pollEvery)
	}
}

var errChanged = errors.New("the gang has changed")

// leaveOnChange ends ctx when the file has another version.
func leaveOnChange(ctx context.Context, leave context.CancelCauseFunc, file, version string) {
	for ctx.Err() == nil && readGang(file).Version == version {
		time.Sleep(pollEvery)
	}
	leave(errChanged)
}

// takePart forms the ring of a version with the neighbors of a worker, computes the sum, and
// then stays in the ring until it breaks or ctx ends.
func takePart(ctx context.Context, listener *net.TCPListener, g gang, index int32) error {
	r, err := form(ctx, listener, g, index)
	if err != nil {
		return err
	}
	// Closing the connections ends every read and write. Then the neighbors leave the ring too.
	defer r.close()
	defer context.AfterFunc(ctx, r.close)()
	sum, err := r.allreduce(int(index) + 1)
	if err != nil {
		return err
	}
	fmt.Printf("sum %d of %d workers in version %s\n", sum, g.Workers, g.Version)
	return r.receive.Decode(&sum) // the left neighbor sends nothing more
}

// ring is the place of a worker in a ring.
type ring struct {
	place, size int
	left, right net.Conn
	receive     *json.Decoder
	send        *json.Encoder
}

func (r *ring) close() {
	r.left.Close()
	r.right.Close()
}

// form connects a worker with its neighbors: it calls the right one, and is called by the
// left one. Every call begins with the version. A worker rejects calls of another version, so
// no ring has workers that read different files.
func form(ctx context.Context, listener *net.TCPListener, g gang, index int32) (*ring, error) {
	r := &ring{place: -1, size: len(g.Members)}
	for i, m := range g.Members {
		if m.Index == index {
			r.place = i
		}
	}
	if r.place < 0 {
		return nil, fmt.Errorf("version %s does not have worker %d", g.Version, index)
	}
	accepted := make(chan net.Conn, 1)
	go func() { accepted <- accept(ctx, listener, g.Version, r) }()
	right := g.Members[(r.place+1)%r.size]
	r.right = call(ctx, net.JoinHostPort(right.Host, strconv.Itoa(*port+int(right.Index))), g.Version)
	r.left = <-accepted
	if r.left == nil || r.right == nil {
		for _, conn := range []net.Conn{r.left, r.right} {
			if conn != nil {
				conn.Close()
			}
		}
		return nil, context.Cause(ctx)
	}
	r.send = json.NewEncoder(r.right)
	return r, nil
}

// accept waits for the call of the left neighbor and accepts it. It returns nil when ctx ends.
func accept(ctx context.Context, listener *net.TCPListener, version string, r *ring) net.Conn {
	for ctx.Err() == nil {
		if err := listener.SetDeadline(time.Now().Add(pollEvery)); err != nil {
			log.Fatal(err)
		}
		conn, err := listener.Accept()
		if err != nil {
			continue
		}
		r.receive = json.NewDecoder(conn)
		if same(conn, r.receive, version) && json.NewEncoder(conn).Encode(version) == nil {
			return conn
		}
		conn.Close()
	}
	return nil
}

// call calls a neighbor until it accepts the version. It returns nil when ctx ends.
func call(ctx context.Context, address, version string) net.Conn {
	for ; ctx.Err() == nil; time.Sleep(pollEvery) {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			continue
		}
		if json.NewEncoder(conn).Encode(version) == nil && same(conn, json.NewDecoder(conn), version) {
			return conn
		}
		conn.Close()
	}
	return nil
}

// same reports whether the other end of a connection sends the same version within a second.
func same(conn net.Conn, received *json.Decoder, version string) bool {
	var other string
	return conn.SetReadDeadline(time.Now().Add(time.Second)) == nil && received.Decode(&other) == nil &&
		other == version && conn.SetReadDeadline(time.Time{}) == nil
}

// allreduce returns the sum of a number of each worker. As with the gradients of a model, each
// worker has a vector, here with its number in each part. In the first half of the steps,
// each worker adds what it receives to one part and passes that part on. Then one part of
// each worker is complete, and the second half passes the complete parts around.
func (r *ring) allreduce(number int) (sum int, err error) {
	vector := make([]int, r.size)
	for i := range vector {
		vector[i] = number
	}
	for step := range 2 * (r.size - 1) {
		out := (r.place - step + 2*r.size) % r.size
		in := (out - 1 + r.size) % r.size
		if err := r.send.Encode(vector[out]); err != nil {
			return 0, err
		}
		var got int
		if err := r.receive.Decode(&got); err != nil {
			return 0, err
		}
		if step < r.size-1 {
			got += vector[in]
		}
		vector[in] = got
	}
	for _, part := range vector {
		if part != vector[0] {
			return 0, fmt.Errorf("the parts differ: %v", vector)
		}
	}
	return vector[0], nil
}
