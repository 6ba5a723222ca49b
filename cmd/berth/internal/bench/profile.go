package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth.dev/pkg/process/child"
	"berth.dev/pkg/store"
)

// profileSeconds is the duration of one profile. If the workload ends before a profile is
// complete, that profile is lost.
const profileSeconds = 5

// profile writes processor profiles of every service, one after the other, until stop is
// called. `go tool pprof` merges them.
func (w *World) profile(ctx context.Context) (stop func()) {
	if w.Profiles == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, service := range services {
		for i, p := range w.processes[service] {
			running.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					name := fmt.Sprintf("%s-%s-%d-%d-%03d.pprof", w.Workload, service, i, len(w.Audits), n)
					text, err := get(ctx, p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
					if err == nil {
						err = os.WriteFile(filepath.Join(w.Profiles, name), text, 0o600)
					}
					if err != nil && ctx.Err() == nil { // the process may restart
						w.Say("no profile of %s: %v", p.Name, err)
						_ = store.Sleep(ctx, time.Second)
					}
				}
			})
		}
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// get returns the response of a process to a GET request on its HTTP port.
func get(ctx context.Context, p *child.Process, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Addresses().HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", p.Name, path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}
