package bench

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth.dev/pkg/identity"
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
	world := len(w.Audits)
	security := w.fleet.ClientTLS(identity.Service | identity.Gateway)
	if security != nil {
		world++ // it may run inside a world in plain text
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, service := range services {
		for i, p := range w.processes[service] {
			running.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					name := fmt.Sprintf("%s-%s-%d-%d-%03d.pprof", w.Workload, service, i, world, n)
					text, err := get(ctx, security, p, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
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

// get returns the response of a process to a GET request on its HTTP port. The request is
// encrypted if security is not nil.
func get(ctx context.Context, security *tls.Config, p *child.Process, path string) ([]byte, error) {
	scheme, web := "http://", http.DefaultClient
	if security != nil {
		scheme, web = "https://", &http.Client{Transport: &http.Transport{TLSClientConfig: security}}
		defer web.CloseIdleConnections()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+p.Addresses().HTTP+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := web.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %s", p.Name, path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}
