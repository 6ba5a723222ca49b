package rest_test

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPagesOfOtherOriginsAreRejected(t *testing.T) {
	const put, get = "PUT /v1/jobs/j/stages/s/reservation", "GET /v1/skus"
	for _, test := range []struct {
		call, host string
		headers    [2]string
		refused    string // the header for which the request is refused
	}{
		{put, "127.0.0.1:8080", [2]string{}, ""},
		{put, "localhost:8080", [2]string{}, ""},
		{put, "[::1]:8080", [2]string{}, ""},
		{put, "Berth.example.com", [2]string{}, ""},
		{put, "berth.example.com.:8080", [2]string{}, ""},
		{get, "localhost", [2]string{"Origin", "http://evil.example"}, ""},
		{put, "localhost:8080", [2]string{"Origin", "http://localhost:8080"}, ""},
		{put, "localhost:8080", [2]string{"Sec-Fetch-Site", "same-origin"}, ""},
		{put, "localhost:8080", [2]string{"Sec-Fetch-Site", "none"}, ""},
		{put, "evil.example:8080", [2]string{}, "Host"},
		{get, "evil.example", [2]string{}, "Host"},
		{get, "127.0.0.1.evil.example", [2]string{}, "Host"},
		{"GET /", "evil.example", [2]string{}, "Host"},
		{"GET /v1/jobs/j/events", "evil.example", [2]string{}, "Host"},
		{"GET /healthz", "evil.example", [2]string{}, ""},
		{"GET /metrics", "berth-gateway.ns:7180", [2]string{}, ""},
		{put, "localhost:8080", [2]string{"Origin", "http://evil.example"}, "Origin"},
		{put, "localhost:8080", [2]string{"Origin", "http://localhost:3000"}, "Origin"},
		{put, "localhost:8080", [2]string{"Origin", "null"}, "Origin"},
		{put, "localhost:8080", [2]string{"Sec-Fetch-Site", "cross-site"}, "Sec-Fetch-Site"},
		{put, "localhost:8080", [2]string{"Sec-Fetch-Site", "same-site"}, "Sec-Fetch-Site"},
	} {
		method, path, _ := strings.Cut(test.call, " ")
		body := ""
		if method == "PUT" {
			body = `{}`
		}
		// curl -d sends this content type.
		r := httptest.NewRequest(method, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Host = test.host
		if test.headers[0] != "" {
			r.Header.Set(test.headers[0], test.headers[1])
		}
		w := httptest.NewRecorder()
		handler(t, &calls{}, "berth.example.com").ServeHTTP(w, r)
		switch refused := w.Code == 403; {
		case refused != (test.refused != ""):
			t.Errorf("%s of %s with %v: %d %s", test.call, test.host, test.headers, w.Code, w.Body)
		case refused && (!strings.Contains(w.Body.String(), test.refused+` \"`) ||
			!strings.Contains(w.Body.String(), test.headers[1]) || !strings.Contains(w.Body.String(), "PERMISSION_DENIED")):
			t.Errorf("%s of %s with %v: the answer does not name %s: %s", test.call, test.host, test.headers, test.refused,
				w.Body)
		}
	}
}

// If a proxy replaces the Host, the Origin of a page differs from the Host. In that case
// Sec-Fetch-Site decides, which no page can forge.
func TestPagesBehindAProxyThatReplacesTheHost(t *testing.T) {
	r := httptest.NewRequest("PUT", "/v1/jobs/j/stages/s/reservation", strings.NewReader(`{}`))
	r.Host = "localhost:8080"
	r.Header.Set("Origin", "https://console.example")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := httptest.NewRecorder()
	if handler(t, &calls{}).ServeHTTP(w, r); w.Code == 403 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
