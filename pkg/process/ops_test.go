package process

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestProfilesAreOffByDefault checks that profiles are not served by default. It also
// checks that all other paths work when profiles are enabled.
func TestProfilesAreOffByDefault(t *testing.T) {
	metrics, err := NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	ops := OpsHandler(nil, nil, nil, metrics)
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

// TestLivenessIsCheckedOnEachRequest checks that a process that cannot work fails its
// liveness check with the reason. After it has recovered, it passes the check again. Its
// other answers do not change.
func TestLivenessIsCheckedOnEachRequest(t *testing.T) {
	metrics, err := NewMetrics(func() string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	var hangs error
	ops := Profiled(false, OpsHandler(func() error { return hangs }, nil, nil, metrics))
	for _, step := range []struct {
		hangs  error
		status int
		body   string
	}{
		{nil, 200, `{"alive":true}`},
		{errors.New("the core hangs"), 503, `{"alive":false,"reason":"the core hangs"}`},
		{nil, 200, `{"alive":true}`},
	} {
		hangs = step.hangs
		w := httptest.NewRecorder()
		ops.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		if body := strings.TrimSpace(w.Body.String()); w.Code != step.status || body != step.body {
			t.Errorf("with %v: %d %s", step.hangs, w.Code, body)
		}
		w = httptest.NewRecorder()
		ops.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		if w.Code != 200 {
			t.Errorf("with %v: /readyz answers %d", step.hangs, w.Code)
		}
	}
}
