package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// HTTPServer is a server for short answers: who does not send its request in
// time is cut off.
func HTTPServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
}

// ServeHTTP is a group member that serves until the server is shut down.
func ServeHTTP(server *http.Server, l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// Step is one thing to do when a process stops.
type Step struct {
	Name string
	Do   func(ctx context.Context) error
}

// Stop does the steps in order, whatever becomes of each. All of them together
// get the time given: a step that starts after it finds its context ended and
// is expected to cut off rather than to wait.
func Stop(log *slog.Logger, within time.Duration, steps ...Step) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, step := range steps {
		if err := step.Do(ctx); err != nil {
			log.Warn("a step of stopping failed", "step", step.Name, "error", err)
		}
	}
}
