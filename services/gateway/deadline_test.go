package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"berth.dev/pkg/model"
	"berth.dev/testkit/porttest"
)

// If all services have leaders, a call with a deadline that is too short does not fail with an
// error about a missing leader.
func TestATooShortDeadlineIsNotAMissingLeader(t *testing.T) {
	r := replica(t)
	r.Lead(model.ServiceExecutorState, true)
	r.Lead(model.ServiceAssigner, true)
	g := run(t, before(r, porttest.Hold(t)))
	var h2 http.Protocols
	h2.SetUnencryptedHTTP2(true)
	// gRPC clients do not send a call with such a deadline.
	grpc := &http.Transport{Protocols: &h2}
	t.Cleanup(grpc.CloseIdleConnections)
	ask := func(t *testing.T, via http.RoundTripper, method, path, body string) (*http.Response, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+g.Listen+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Grpc-Timeout", "1n")
		if via == grpc {
			req.Header.Set("Content-Type", "application/grpc")
			req.Header.Set("TE", "trailers")
		}
		res, err := via.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res, string(text)
	}

	const reservation = "/v1/jobs/j/stages/s/reservation"
	for _, c := range [][3]string{
		{"GET", reservation, ""}, {"PUT", reservation, `{"count": 1}`}, {"GET", reservation + ":explain", ""},
		{"GET", "/v1/executors", ""},
		{"GET", "/v1/assignments", ""}, {"GET", "/v1/leaders", ""}, {"GET", "/v1/findings", ""},
	} {
		res, text := ask(t, http.DefaultTransport, c[0], c[1], c[2])
		if res.StatusCode < 500 || strings.Contains(text, "no leader") ||
			!strings.Contains(text, "the deadline of the call passed") || !strings.Contains(text, "give it more time") {
			t.Errorf("%s %s: %d %s", c[0], c[1], res.StatusCode, text)
		}
	}
	for _, method := range []string{"Reservations/GetReservation", "Executors/ListExecutors",
		"Explanations/ExplainReservation", "Leaders/ListLeaders"} {
		const emptyMessage = "\x00\x00\x00\x00\x00"
		res, _ := ask(t, grpc, "POST", "/berth.v1."+method, emptyMessage)
		status, text := res.Header.Get("Grpc-Status")+res.Trailer.Get("Grpc-Status"),
			res.Header.Get("Grpc-Message")+res.Trailer.Get("Grpc-Message")
		if status != "4" || strings.Contains(text, "no leader") {
			t.Errorf("%s: status %q, %q", method, status, text)
		}
	}
}
