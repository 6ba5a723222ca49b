package gateway_test

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/services/gateway"
	"berth.dev/testkit/etcdtest"
)

// A gateway below a path answers REST and gRPC with the path, for a proxy that keeps it, and
// without the path, for a proxy that removes it.
func TestAGatewayBelowAPath(t *testing.T) {
	config := before(replica(t), etcdtest.Start(t).Endpoints()...)
	config.BasePath = "/tools/berth/" // the slash at the end is not part of it
	g := run(t, config)
	for _, base := range []string{"", "/tools/berth"} {
		for path, want := range map[string]string{
			"/v1/jobs/j/stages/s/reservation": "of-j", "/v1/leaders": `"r1"`, "/healthz": "true",
			"/openapi.json": `"url": "/tools/berth"`, "/v1/jobs/a%2Fb/stages/s/reservation": "of-a/b",
			"/v1//leaders": "there is nothing at /v1//leaders", "/": "Berth schedules gangs",
		} {
			if got := body(t, "http://"+g.Listen+base+path); !strings.Contains(got, want) {
				t.Errorf("%s%s answers %.300s, want %s", base, path, got, want)
			}
		}
		conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{Base: base, FailFast: true, Silence: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		got, err := berthv1.NewReservationsClient(conn).GetReservation(t.Context(), &berthv1.GetReservationRequest{Job: "j"})
		if err != nil || got.GetUid() != "of-j" {
			t.Errorf("%q: a forwarded call: %v, %v", base, got, err)
		}
		leaders, err := berthv1.NewLeadersClient(conn).ListLeaders(t.Context(), &berthv1.ListLeadersRequest{})
		if err != nil || leaders.GetServices()[0].GetLeader() != "r1" {
			t.Errorf("%q: a call that the gateway answers: %v, %v", base, leaders, err)
		}
		watch, err := healthpb.NewHealthClient(conn).Watch(t.Context(),
			&healthpb.HealthCheckRequest{Service: model.ServiceGateway})
		if err != nil {
			t.Fatal(err)
		}
		if state, err := watch.Recv(); err != nil || state.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Errorf("%q: a stream: %v, %v", base, state, err)
		}
	}
	if got := body(t, "http://"+g.Listen+"/other/v1/x"); !strings.Contains(got, "there is nothing at /other/v1/x") {
		t.Errorf("another path answers %s", got)
	}
	if got := body(t, "http://"+g.Listen+"/tools/berth"); !strings.Contains(got, "Berth schedules gangs") {
		t.Errorf("the base path itself answers %s", got)
	}
	page := body(t, "http://"+g.Listen+"/tools/berth/jobs")
	for _, name := range regexp.MustCompile(`(?:src|href|content)="(/[^"]*)"`).FindAllStringSubmatch(page, -1) {
		if !strings.HasPrefix(name[1], "/tools/berth") {
			t.Errorf("the page names %s", name[1])
		}
	}
	script := regexp.MustCompile(`src="(/tools/berth/assets/[^"]+)"`).FindStringSubmatch(page)
	if script == nil || !strings.Contains(page, `content="/tools/berth"`) ||
		!strings.Contains(body(t, "http://"+g.Listen+script[1]), "berth-base") {
		t.Errorf("the page is\n%s", page)
	}
}

// Other programs on the host of the proxy do not get the cookie of a session.
func TestTheCookieOfAGatewayBelowAPath(t *testing.T) {
	config := withTokens(t, before(replica(t), "127.0.0.1:1"))
	config, authority := secured(t, config)
	config.TLSMode, config.BasePath = "allow", "/berth"
	g := run(t, config)
	client := clientOf(t, authority, identity.Viewer, "v")
	client.Certificates = []tls.Certificate{}
	b := browse(t, "https://"+g.Listen, client)
	answer, text := b.send("POST", "/berth/session", `{"token":"of-alice"}`, ownPage)
	want := "__Secure-berth=of-alice; Path=/berth/; HttpOnly; Secure; SameSite=Strict"
	if got := answer.Header["Set-Cookie"]; answer.StatusCode != http.StatusOK || !slices.Equal(got, []string{want}) {
		t.Fatalf("%s %s, cookies %q", answer.Status, text, got)
	}
	answer, text = b.send("GET", "/berth/v1/caller", "", "Cookie: __Secure-berth=of-alice")
	var caller struct{ Name string }
	if err := json.Unmarshal([]byte(text), &caller); err != nil || caller.Name != "alice" {
		t.Errorf("%s %s", answer.Status, text)
	}
	answer, _ = b.send("DELETE", "/berth/session", "", ownPage, "Cookie: __Secure-berth=of-alice")
	for _, c := range answer.Cookies() {
		if c.Path != "/berth/" || c.MaxAge >= 0 || c.Name != "__Secure-berth" && c.Name != "berth" {
			t.Errorf("the end of the session sets %v", c)
		}
	}
}

// A base path that could be mistaken for a path of the gateway is refused.
func TestInvalidBasePathsAreRejected(t *testing.T) {
	for _, path := range []string{"berth", "/v1", "/jobs/berth", "/a b", "/a//b", "/a/../b", "/berth.v1.Leaders", "/ü",
		"https://host/berth", "/a?b", "/metrics"} {
		config := gateway.DefaultConfig()
		config.BasePath = path
		if err := gateway.Run(t.Context(), config, nil); !fault.Is(err, fault.ReasonInvalid) ||
			!strings.Contains(err.Error(), "--base-path") {
			t.Errorf("%q: %v", path, err)
		}
	}
}
