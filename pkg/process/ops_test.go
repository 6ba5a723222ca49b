package process

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestProfilesAreOffUnlessAskedFor says that nobody reads a process's insides
// by accident, and that turning them on takes nothing else away.
func TestProfilesAreOffUnlessAskedFor(t *testing.T) {
	metrics, err := NewMetrics()
	if err != nil {
		t.Fatal(err)
	}
	ops := OpsHandler(nil, nil, metrics)
	status := func(h http.Handler, path string) int {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		return answer.Code
	}
	for _, tt := range []struct {
		path    string
		on, off int
	}{
		{"/debug/pprof/", 200, 404},
		{"/debug/pprof/heap", 200, 404},
		{"/healthz", 200, 200},
		{"/metrics", 200, 200},
		{"/leaderz", 404, 404},
	} {
		if got := status(Profiled(true, ops), tt.path); got != tt.on {
			t.Errorf("on: %s answers %d", tt.path, got)
		}
		if got := status(Profiled(false, ops), tt.path); got != tt.off {
			t.Errorf("off: %s answers %d", tt.path, got)
		}
	}
}
