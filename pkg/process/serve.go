package process

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// HTTPServer returns a server for short answers. The server disconnects clients that do
// not send their request in time.
func HTTPServer(handler http.Handler) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
}

// ServeHTTP returns a function for Group.Go that serves until the server is shut down.
func ServeHTTP(server *http.Server, l net.Listener) func(context.Context) error {
	return func(context.Context) error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}
}

// Step is one step of a shutdown.
type Step struct {
	Name string
	Do   func(ctx context.Context) error
}

// Stop runs the steps in order. If a step fails, it continues with the next one. The time
// limit applies to all steps together. A step that starts after the limit receives an
// ended context: it must abort instead of waiting.
func Stop(log *slog.Logger, within time.Duration, steps ...Step) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	for _, step := range steps {
		if err := step.Do(ctx); err != nil {
			log.Warn("a shutdown step failed", "step", step.Name, "error", err)
		}
	}
}
