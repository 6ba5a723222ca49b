package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

var (
	// groups has the nodes that have the same documents. The first of each is the primary.
	// Documents whose key begins with "config." belong to the first group.
	groups = [][]string{{"agents/0", "agents/1", "agents/2"}, {"data/0", "secondary/0"}, {"data/1", "secondary/1"}}

	documentKey = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`) // also the name of its file
	errNone     = errors.New("no such document")
	caller      = http.Client{Timeout: 5 * time.Second}
)

// node is a worker with documents in its volume, or a coordinator, which has no volume.
type node struct {
	name, volume string
	group        []string
	writes       sync.Mutex
}

// serve serves documents until ctx ends. The address of a node ends with the ID of its worker,
// so that another worker that gets the same port does not answer instead.
func serve(ctx context.Context) {
	n := &node{name: os.Getenv("BERTH_STAGE") + "/" + os.Getenv("BERTH_WORKER_INDEX"), volume: os.Getenv("BERTH_VOLUME")}
	for _, group := range groups {
		if slices.Contains(group, n.name) {
			n.group = group
			n.restore()
		}
	}
	worker := "/" + n.name + "." + os.Getenv("BERTH_WORKER_NUMBER") + "/"
	mux := http.NewServeMux()
	mux.Handle(worker, http.StripPrefix(worker, n))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMisdirectedRequest) })
	server, listener := http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}, must(net.Listen("tcp", "127.0.0.1:0"))
	go server.Serve(listener) //nolint:errcheck // until the shutdown
	replace(in("nodes", n.name), fmt.Appendf(nil, "http://%s%s", listener.Addr(), worker), 0o644)
	check(os.WriteFile(os.Getenv("BERTH_READY_PIPE"), []byte("ready\n"), 0))
	<-ctx.Done()
	check(server.Shutdown(context.Background()))
}

// restore copies the documents of the group to a new volume. If other nodes of the group were
// started before and none answers, it ends the program, and Berth starts this node again.
func (n *node) restore() {
	complete := filepath.Join(n.volume, ".complete")
	if _, err := os.Stat(complete); err == nil {
		return
	}
	var failed error
	for _, other := range n.group {
		keys, err := call(http.MethodGet, other, "", nil)
		if other == n.name || errors.Is(err, fs.ErrNotExist) {
			continue // it was never started
		}
		for _, key := range strings.Fields(string(keys)) {
			replace(filepath.Join(n.volume, key), must(call(http.MethodGet, other, key, nil)), 0o644)
		}
		if failed = err; err == nil {
			break
		}
	}
	check(failed)
	check(os.WriteFile(complete, nil, 0o644))
}

// ServeHTTP reads or writes a document. A node with documents lists their keys at its address.
func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.URL.Path
	text, err := io.ReadAll(r.Body)
	switch {
	case err != nil:
	case key == "" && r.Method == http.MethodGet && n.group != nil:
		for _, path := range must(filepath.Glob(filepath.Join(n.volume, "[^.]*"))) {
			text = fmt.Appendln(text, filepath.Base(path))
		}
	case !documentKey.MatchString(key):
		err = fmt.Errorf("%q is not a key", key)
	case n.group == nil:
		text, err = coordinate(w, r.Method, key, text)
	case r.Method == http.MethodPut:
		err = n.write(key, text)
	default:
		if text, err = os.ReadFile(filepath.Join(n.volume, key)); errors.Is(err, fs.ErrNotExist) {
			err = errNone
		}
	}
	switch {
	case errors.Is(err, errNone):
		http.Error(w, err.Error(), http.StatusNotFound)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case r.Method == http.MethodGet:
		w.Write(text) //nolint:errcheck,gosec // the client has disconnected; a document is no page
	}
}

// write writes a document. A primary first writes it to the others of its group, so they have
// every document that it has. A write that fails may have reached some of them: repeat it.
func (n *node) write(key string, text []byte) error {
	n.writes.Lock()
	defer n.writes.Unlock()
	if n.name == n.group[0] {
		for _, other := range n.group[1:] {
			if _, err := call(http.MethodPut, other, key, text); err != nil {
				return err
			}
		}
	}
	replace(filepath.Join(n.volume, key), text, 0o644)
	return nil
}

// coordinate writes a document to its primary, or reads it from the first node that answers.
func coordinate(w http.ResponseWriter, method, key string, document []byte) (text []byte, err error) {
	group := groups[0]
	if !strings.HasPrefix(key, "config.") {
		group = groups[1+crc32.ChecksumIEEE([]byte(key))%2]
	}
	for _, name := range group {
		text, err = call(method, name, key, document)
		if err == nil || errors.Is(err, errNone) || method == http.MethodPut {
			w.Header().Set("Node", name)
			break
		}
	}
	return text, err
}

// call reads or writes a document of a node.
func call(method, name, key string, document []byte) ([]byte, error) {
	address, err := os.ReadFile(in("nodes", name))
	if err != nil {
		return nil, err
	}
	answer, err := caller.Do(must(http.NewRequest(method, string(address)+key, bytes.NewReader(document)))) //nolint:gosec // of a node
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusNotFound {
		return nil, errNone
	} else if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", name, answer.Status, bytes.TrimSpace(text))
	}
	return text, err
}
