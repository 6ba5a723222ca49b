package gateway_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protojson"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/process"
	"berth.dev/pkg/transport"
	"berth.dev/services/gateway"
	"berth.dev/services/gateway/internal/replicatest"
	"berth.dev/testkit/porttest"
)

// browser is a web client of a gateway that has no certificate.
type browser struct {
	t    *testing.T
	url  string
	http *http.Client
}

func browse(t *testing.T, url string, config *tls.Config) *browser {
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(web.CloseIdleConnections)
	return &browser{t, url, web}
}

// send sends a request with headers, such as "Cookie: a=b", and returns the answer and its body.
func (b *browser) send(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	answer, err := b.http.Do(request)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer, string(text)
}

// caller returns the caller that GET /v1/caller shows.
func (b *browser) caller(headers ...string) *berthv1.Caller {
	b.t.Helper()
	answer, text := b.send("GET", "/v1/caller", "", headers...)
	c := &berthv1.Caller{}
	if err := protojson.Unmarshal([]byte(text), c); err != nil || answer.StatusCode != http.StatusOK {
		b.t.Fatalf("%s %s", answer.Status, text)
	}
	return c
}

// withTokens gives a gateway an access file with tokens of an operator and of a job service.
func withTokens(t *testing.T, config gateway.Config) gateway.Config {
	t.Helper()
	config.Access = filepath.Join(t.TempDir(), "access.yaml")
	text := fmt.Sprintf("tokens:\n- {role: operator, name: alice, sha256: %x}\n- {role: job, name: train, sha256: %x}\n",
		sha256.Sum256([]byte("of-alice")), sha256.Sum256([]byte("of-train")))
	if err := os.WriteFile(config.Access, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config.Replica = "g"
	return config
}

const ownPage = "Sec-Fetch-Site: same-origin"

// A browser gets a session, uses it for reads and changes, and ends it. The services see the
// identity and never the cookie. Another gateway accepts the cookie too.
func TestSessionsOfBrowsers(t *testing.T) {
	for _, encrypted := range []bool{true, false} {
		t.Run(fmt.Sprintf("TLS=%t", encrypted), func(t *testing.T) {
			seen := make(chan metadata.MD, 1)
			r := replicatest.Start(t, "", replicatest.Answers{
				Get: func(ctx context.Context, _ *berthv1.GetReservationRequest) (*berthv1.Reservation, error) {
					md, _ := metadata.FromIncomingContext(ctx)
					seen <- md
					return &berthv1.Reservation{}, nil
				},
			})
			r.Lead("registry", true)
			config := withTokens(t, before(r, porttest.Hold(t)))
			scheme, name, attributes, trusted := "http://", "berth", "Path=/; HttpOnly; SameSite=Strict", true
			var client *tls.Config
			if encrypted {
				c, authority := secured(t, config)
				config, client = c, clientOf(t, authority, identity.Viewer, "v")
				client.Certificates = nil
				config.TLSMode = string(transport.Allow) // the services are in plain text
				scheme, name, attributes, trusted = "https://", "__Host-berth", "Path=/; HttpOnly; Secure; SameSite=Strict",
					false
			}
			g := run(t, config)
			b := browse(t, scheme+g.Listen, client)
			if c := b.caller(); c.GetIdentity() != "" || c.GetTrusted() != trusted || c.GetGateway() != "g" ||
				c.GetCluster() != "default" || c.GetVersion() != process.Version || len(c.GetMethods()) == 0 {
				t.Errorf("before: %v", c)
			}

			answer, text := b.send("POST", "/session", `{"token":"of-alice"}`, ownPage)
			cookie := name + "=of-alice"
			if got := answer.Header["Set-Cookie"]; answer.StatusCode != http.StatusOK ||
				!slices.Equal(got, []string{cookie + "; " + attributes}) ||
				answer.Header.Get("Content-Type") != "application/json" {
				t.Fatalf("%s %s, cookies %q", answer.Status, text, got)
			}
			if _, same := b.send("GET", "/v1/caller", "", "Cookie: "+cookie); same != text ||
				!strings.Contains(text, `"identity":"berth://default/operator/alice","role":"operator","name":"alice","trusted":false`) {
				t.Errorf("the answer to POST /session is %s, that of GET /v1/caller is %s", text, same)
			}
			if c := b.caller("Cookie: " + cookie); !slices.Contains(c.GetMethods(), "berth.v1.Leaders/Resign") || !c.GetSession() {
				t.Errorf("with a session: %v", c)
			}
			if c := b.caller("Cookie: "+cookie, "Authorization: Bearer of-train"); c.GetName() != "train" || c.GetSession() {
				t.Errorf("with a token in the header: %v", c)
			}
			if _, text := b.send("GET", "/v1/jobs/j/stages/s/reservation", "", "Cookie: "+cookie,
				"Grpc-Metadata-Cookie: x"); strings.Contains(text, "PERMISSION_DENIED") {
				t.Errorf("a read: %s", text)
			}
			select {
			case md := <-seen:
				if strings.Contains(fmt.Sprint(md), "of-alice") || len(md["cookie"]) > 0 ||
					!slices.Equal(md["berth-caller"], []string{"berth://default/operator/alice"}) {
					t.Errorf("the service sees %v", md)
				}
			default:
				t.Error("the call did not reach the service")
			}
			for _, headers := range [][]string{{ownPage}, {"Origin: " + scheme + g.Listen}} {
				if answer, text := b.send("POST", "/v1/leaders/registry:resign", `{"term":99}`,
					append(headers, "Cookie: "+cookie)...); answer.StatusCode == http.StatusForbidden {
					t.Errorf("a change with %v: %s", headers, text)
				}
			}
			for header, want := range map[string]string{
				"Accept: */*":                        "must come from a page of this gateway",
				"Sec-Fetch-Site: none":               "must come from a page of this gateway",
				"Origin: " + scheme + "evil.example": "a web page of another origin may not call",
			} {
				if answer, text := b.send("POST", "/v1/leaders/registry:resign", `{}`, header,
					"Cookie: "+cookie); answer.StatusCode != http.StatusForbidden || !strings.Contains(text, want) {
					t.Errorf("a change with %s: %s %s", header, answer.Status, text)
				}
			}
			if answer, text := b.send("GET", "/v1/leaders", "", "Cookie: "+cookie, "Sec-Fetch-Site: same-site"); answer.
				StatusCode != http.StatusForbidden {
				t.Errorf("a read of another page: %s %s", answer.Status, text)
			}

			// The token is withdrawn: the page can still be loaded, and shows a form.
			withdrawn := "Cookie: " + name + "=withdrawn"
			if c := b.caller(withdrawn); c.GetIdentity() != "" || c.GetTrusted() {
				t.Errorf("with a withdrawn token: %v", c)
			}
			if answer, text := b.send("GET", "/", "", withdrawn); answer.StatusCode != http.StatusOK {
				t.Errorf("GET / with a withdrawn token: %s", text)
			}
			if answer, text := b.send("GET", "/v1/leaders", "", withdrawn); answer.StatusCode != http.StatusForbidden {
				t.Errorf("GET /v1/leaders with a withdrawn token: %s %s", answer.Status, text)
			}
			if answer, text := b.send("POST", "/session", `{"token":"of-train"}`, ownPage, withdrawn); answer.StatusCode != http.StatusOK ||
				!strings.Contains(text, "berth://default/job/train") {
				t.Errorf("POST /session with a withdrawn token: %s %s", answer.Status, text)
			}
			if c := b.caller("Cookie: " + name + "=of-train"); c.GetName() != "train" {
				t.Errorf("a job service: %v", c)
			}
			answer, text = b.send("DELETE", "/session", "", ownPage, withdrawn)
			if got := answer.Header["Set-Cookie"]; answer.StatusCode != http.StatusOK || text != "{}\n" || len(got) != 2 ||
				!strings.HasPrefix(got[0], "__Host-berth=; Path=/; Max-Age=0") ||
				!strings.HasPrefix(got[1], "berth=; Path=/; Max-Age=0") {
				t.Errorf("DELETE /session: %s %s, cookies %q", answer.Status, text, got)
			}

			config.Replica, config.Listen = "g2", ":0"
			other := browse(t, scheme+run(t, config).Listen, client)
			if c := other.caller("Cookie: " + cookie); c.GetName() != "alice" || c.GetGateway() != "g2" {
				t.Errorf("another gateway: %v", c)
			}
		})
	}
}

func TestRefusedSessions(t *testing.T) {
	config := withTokens(t, before(replica(t), porttest.Hold(t)))
	g := run(t, config)
	b := browse(t, "http://"+g.Listen, nil)
	_, wrong := b.send("GET", "/", "", "Authorization: Bearer x")
	for _, c := range []struct {
		name, method, body string
		headers            []string
		code               int
		want               string
	}{
		{"a wrong token", "POST", `{"token":"x"}`, nil, 403, wrong},
		{"no token", "POST", `{}`, nil, 400, `"field":"token"`},
		{"no body", "POST", ``, nil, 400, `"field":"token"`},
		{"an unknown field", "POST", `{"token":"of-alice","role":"x"}`, nil, 400, `"field":"role"`},
		{"a long token", "POST", `{"token":"` + strings.Repeat("x", 3801) + `"}`, nil, 400, "at most 3800 bytes to fit in a cookie, got 3801"},
		{"a token with a space", "POST", `{"token":"of alice"}`, nil, 400, "characters that a cookie may have"},
		{"a large body", "POST", `{"token":"` + strings.Repeat("x", 16<<10) + `"}`, nil, 413, "larger than 16384 bytes"},
		{"another origin", "POST", `{"token":"of-alice"}`, []string{"Origin: http://evil.example"}, 403, "another origin"},
		{"the end by another origin", "DELETE", ``, []string{"Sec-Fetch-Site: cross-site"}, 403, "another origin"},
		{"an end with a body", "DELETE", `{}`, nil, 400, "takes no body"},
		{"a read", "GET", ``, nil, 405, "GET is not supported at /session"},
		{"a replacement", "PUT", `{}`, nil, 405, "PUT is not supported at /session"},
	} {
		answer, text := b.send(c.method, "/session", c.body, c.headers...)
		if answer.StatusCode != c.code || !strings.Contains(text, c.want) || len(answer.Header["Set-Cookie"]) > 0 {
			t.Errorf("%s: %s %s, cookies %v", c.name, answer.Status, text, answer.Header["Set-Cookie"])
		}
	}
	config.Access, config.Listen = "", ":0"
	none := browse(t, "http://"+run(t, config).Listen, nil)
	if answer, text := none.send("POST", "/session", `{"token":"of-alice"}`); answer.StatusCode != http.StatusPreconditionFailed ||
		!strings.Contains(text, "it has no --access file") || len(answer.Header["Set-Cookie"]) > 0 {
		t.Errorf("without an access file: %s %s", answer.Status, text)
	}
	if c := none.caller("Cookie: berth=of-alice"); !c.GetTrusted() {
		t.Errorf("a cookie without an access file: %v", c)
	}
}

// The audit log of a gateway is in memory without a file. Its entries come page by page, the
// newest first, and none has a token.
func TestTheAuditLogOfAGateway(t *testing.T) {
	config, authority := secured(t, withTokens(t, before(replica(t), porttest.Hold(t))))
	g := run(t, config)
	client := clientOf(t, authority, identity.Operator, "admin")
	b := browse(t, "https://"+g.Listen, client)
	b.send("POST", "/session", `{"token":"of-alice"}`, ownPage)
	b.send("POST", "/session", `{"token":"wrong-token"}`, ownPage)
	b.send("DELETE", "/session", "", ownPage, "Cookie: __Host-berth=of-alice")
	b.send("POST", "/session", `{"token":"of-alice"}`, "Origin: https://evil.example")
	b.send("POST", "/v1/leaders/registry:resign", `{"term":99}`)
	list := func(query string) (list struct {
		Entries              []map[string]string
		NextPageToken, Since string
		Gateway              string
	}) {
		answer, text := b.send("GET", "/v1/audit"+query, "")
		if err := json.Unmarshal([]byte(text), &list); err != nil || answer.StatusCode != http.StatusOK ||
			strings.Contains(text, "of-alice") || strings.Contains(text, "wrong-token") {
			t.Fatalf("%s %s", answer.Status, text)
		}
		return list
	}
	first := list("?pageSize=2")
	b.send("DELETE", "/session", "", ownPage) // a new entry
	second := list("?pageSize=9&pageToken=" + first.NextPageToken)
	const admin, alice = "berth://default/operator/admin", "berth://default/operator/alice"
	want := []string{
		admin + " berth.v1.Leaders/Resign Unavailable", admin + " POST /session PermissionDenied",
		alice + " DELETE /session OK", admin + " POST /session PermissionDenied", alice + " POST /session OK",
	}
	var got []string
	for _, e := range slices.Concat(first.Entries, second.Entries) {
		got = append(got, e["caller"]+" "+e["method"]+" "+e["outcome"])
		if e["listener"] != "--listen" || e["peer"] == "" || e["time"] == "" || e["time"] < first.Since {
			t.Errorf("entry %v, since %s", e, first.Since)
		}
	}
	if !slices.Equal(got, want) || len(first.Entries) != 2 || second.NextPageToken != "" || first.Gateway != "g" {
		t.Errorf("got %q\nwant %q\nfirst %+v", got, want, first)
	}
	for query, field := range map[string]string{"?pageSize=1001": "pageSize", "?pageSize=-1": "pageSize",
		"?pageToken=x": "pageToken"} {
		if answer, text := b.send("GET", "/v1/audit"+query, ""); answer.StatusCode != http.StatusBadRequest ||
			!strings.Contains(text, `"field":"`+field+`"`) {
			t.Errorf("%s: %s %s", query, answer.Status, text)
		}
	}
	viewer := browse(t, "https://"+g.Listen, clientOf(t, authority, identity.Viewer, "v"))
	if answer, text := viewer.send("GET", "/v1/audit", ""); answer.StatusCode != http.StatusForbidden {
		t.Errorf("a viewer: %s %s", answer.Status, text)
	}
}

// GetCaller over gRPC sees a certificate, a token and no identity.
func TestCallersOverGRPC(t *testing.T) {
	config, authority := secured(t, withTokens(t, before(replica(t), porttest.Hold(t))))
	g := run(t, config)
	anonymous := clientOf(t, authority, identity.Agent, "host")
	anonymous.Certificates = nil
	for _, c := range []struct {
		config *tls.Config
		ctx    context.Context
		want   string
	}{
		{clientOf(t, authority, identity.Agent, "host"), t.Context(), "berth://default/agent/host"},
		{clientOf(t, authority, identity.Job, "train"), t.Context(), "berth://default/job/train"},
		{anonymous, t.Context(), ""},
		{anonymous, metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer of-alice"),
			"berth://default/operator/alice"},
		{anonymous, metadata.AppendToOutgoingContext(t.Context(), "cookie", "__Host-berth=of-alice"), ""},
	} {
		conn, err := rpc.Dial([]string{g.Listen}, rpc.DialOptions{TLS: c.config})
		if err != nil {
			t.Fatal(err)
		}
		got, err := berthv1.NewCallersClient(conn).GetCaller(c.ctx, &berthv1.GetCallerRequest{}, grpc.WaitForReady(true))
		if err != nil || got.GetIdentity() != c.want || got.GetTrusted() || got.GetSession() ||
			slices.Contains(got.GetMethods(), "berth.v1.AuditLog/ListAuditEntries") != strings.Contains(c.want, "operator") {
			t.Errorf("%q: %v, %v", c.want, got, err)
		}
		conn.Close()
	}
}
