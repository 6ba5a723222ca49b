package access

import (
	"context"
	"encoding/json"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/transport"
)

// console is the public listener of a gateway with tokens of an operator and of a viewer.
type console struct {
	*Guard
	audit strings.Builder
}

func newConsole(t *testing.T) *console {
	t.Helper()
	c := &console{Guard: &Guard{Listener: Public, Cluster: cluster, Access: open(t,
		"tokens:\n- {role: operator, name: alice, sha256: "+hash("of-alice")+"}\n"+
			"- {role: viewer, name: bob, sha256: "+hash("of-bob")+"}\n")}}
	c.Audit = newAudit(&c.audit, nil, nil)
	return c
}

// request returns a request with headers, such as "Cookie: a=b".
func request(encrypted bool, method, path string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, path, http.NoBody)
	r.Host = "gw.example.com:8080"
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Add(name, value)
	}
	if encrypted {
		return r
	}
	server := &http.Server{}
	transport.ServeHTTP(server)
	return r.WithContext(server.ConnContext(r.Context(), &net.TCPConn{}))
}

// send passes a request through the guard. It returns the caller that the handler of a method
// sees, or the error.
func (c *console) send(r *http.Request, method string) (caller string, err error) {
	c.HTTP(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if _, found := r.Header["Cookie"]; found {
			caller = "with a cookie: "
		}
		if method == "" {
			caller += CallerIn(r.Context()).String()
			return
		}
		err = c.Check(r.Context(), method, nil, func() error {
			caller += CallerIn(r.Context()).String()
			return nil
		})
	}), func(_ http.ResponseWriter, rejected error) { err = rejected }).ServeHTTP(httptest.NewRecorder(), r)
	return caller, err
}

const (
	alice = "berth://default/operator/alice"
	bob   = "berth://default/viewer/bob"
)

// The cookie of a session identifies the caller if a page of the gateway sends it, and never
// reaches the handlers.
func TestTheCookieOfASession(t *testing.T) {
	const (
		reads, drains = berthv1.Leaders_ListLeaders_FullMethodName, berthv1.Executors_DrainExecutor_FullMethodName
		caller        = berthv1.Callers_GetCaller_FullMethodName
		secure, plain = "Cookie: __Host-berth=of-alice", "Cookie: berth=of-alice"
		unknown       = "Cookie: __Host-berth=withdrawn"
		own, other    = "Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"
		origin        = "Origin: https://gw.example.com:8080"
		sameSite      = "Sec-Fetch-Site: same-site"
		navigates     = "Sec-Fetch-Mode: navigate"

		changes, foreign = "must come from a page of this gateway", "may not use the cookie"
		isUnknown        = "the bearer token is unknown"
	)
	for _, c := range []struct {
		name    string
		plain   bool
		method  string // GET to read, POST to change
		call    string
		headers []string
		want    string // the caller, or the error
	}{
		{"a cookie", false, "GET", reads, []string{secure}, alice},
		{"a cookie among others", false, "GET", reads, []string{"Cookie: a=b; __Host-berth=of-alice; c=d"}, alice},
		{"the header counts", false, "GET", reads, []string{secure, "Authorization: Bearer of-bob"}, bob},
		{"an empty header counts", false, "GET", reads, []string{secure, "Authorization: "}, "no bearer token"},
		{"a cookie in plain text", true, "GET", reads, []string{plain}, alice},
		{"no cookie in plain text", true, "GET", reads, nil, "trusted"},
		{"the cookie without TLS, with TLS", false, "GET", reads, []string{plain}, "no bearer token"},
		{"the cookie with TLS, without TLS", true, "GET", reads, []string{secure}, "trusted"},
		{"an empty cookie", false, "GET", reads, []string{"Cookie: __Host-berth="}, "no bearer token"},
		{"two cookies", false, "GET", reads, []string{secure + "; __Host-berth=of-bob"}, "must have __Host-berth once"},
		{"an unknown token", false, "GET", reads, []string{unknown}, "requires the role viewer or operator; " + isUnknown},
		{"an unknown token in plain text", true, "GET", reads, []string{"Cookie: berth=x"}, isUnknown},
		{"without the role", false, "POST", drains, []string{"Cookie: __Host-berth=of-bob", own},
			"requires the role operator"},

		{"a change of an own page", false, "POST", drains, []string{secure, own}, alice},
		{"a change with the origin", false, "POST", drains, []string{secure, origin}, alice},
		{"a change with the origin and none", false, "PUT", drains, []string{secure, origin, "Sec-Fetch-Site: none"}, alice},
		{"a change in plain text", true, "POST", drains, []string{plain, "Origin: http://gw.example.com:8080"}, alice},
		{"a change behind a proxy", false, "DELETE", drains, []string{secure, own, "Origin: https://other"}, alice},
		{"a change of a header", false, "POST", drains, []string{"Authorization: Bearer of-alice"}, alice},
		{"a change without a proof", false, "POST", drains, []string{secure}, changes},
		{"a change by the user", false, "POST", drains, []string{secure, "Sec-Fetch-Site: none"}, changes},
		{"a change of another site", false, "POST", drains, []string{secure, other, origin}, changes},
		{"a change of the same site", false, "POST", drains, []string{secure, sameSite}, changes},
		{"a change of another port", false, "POST", drains, []string{secure, "Origin: https://gw.example.com"}, changes},
		{"a change of the unencrypted page", false, "POST", drains, []string{secure, "Origin: http://gw.example.com:8080"},
			changes},
		{"a change of an opaque origin", false, "POST", drains, []string{secure, "Origin: null"}, changes},
		{"a change of another page in plain text", true, "POST", drains, []string{plain, "Origin: http://evil.example"},
			changes},

		{"a read of an own page", false, "GET", reads, []string{secure, own}, alice},
		{"a read of the user", false, "GET", reads, []string{secure, "Sec-Fetch-Site: none"}, alice},
		{"a read of another site", false, "GET", reads, []string{secure, other}, foreign},
		{"a read of the same site", false, "HEAD", reads, []string{secure, sameSite}, foreign},
		{"a link", false, "GET", reads, []string{secure, other, navigates, "Sec-Fetch-Dest: document"}, alice},
		{"a frame", false, "GET", reads, []string{secure, other, navigates, "Sec-Fetch-Dest: iframe"},
			foreign},
		{"a script", false, "GET", reads, []string{secure, other, "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"},
			foreign},

		{"who with a cookie", false, "GET", caller, []string{secure}, alice},
		{"who with an unknown token", false, "GET", caller, []string{unknown}, nobody},
		{"who with an unknown token in plain text", true, "GET", caller, []string{"Cookie: berth=x"}, nobody},
		{"who of another site", false, "GET", caller, []string{secure, other}, nobody},
		{"who with an unknown header", false, "GET", caller, []string{"Authorization: Bearer x"}, isUnknown},
	} {
		g := newConsole(t)
		got, err := g.send(request(!c.plain, c.method, "/v1/x", c.headers...), c.call)
		if err == nil && got != c.want || err != nil && (!isDenied(err) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
		}
		if line := g.audit.String(); err != nil && (!strings.Contains(line, "PermissionDenied") ||
			strings.Contains(line, "of-alice") || strings.Contains(line, "withdrawn")) {
			t.Errorf("%s: audit log %s", c.name, line)
		}
	}
}

// A cookie that is not accepted locks nobody out of the paths for everybody. A header does.
func TestACookieThatIsNotAccepted(t *testing.T) {
	for _, call := range []string{"GET /", "POST /session", "DELETE /session", "GET /healthz", "GET /openapi.json"} {
		method, path, _ := strings.Cut(call, " ")
		for _, headers := range [][]string{{"Cookie: __Host-berth=withdrawn"}, {"Cookie: __Host-berth=of-alice; __Host-berth=x"},
			{"Cookie: __Host-berth=of-alice", "Sec-Fetch-Site: cross-site"}} {
			if got, err := newConsole(t).send(request(true, method, path, headers...), ""); err != nil || got != nobody {
				t.Errorf("%s with %v: %s, %v", call, headers, got, err)
			}
		}
		if _, err := newConsole(t).send(request(true, method, path, "Authorization: Bearer x"), ""); !isDenied(err) ||
			fault.Of(err).Message != "the bearer token is unknown" {
			t.Errorf("%s with an unknown header: %v", call, err)
		}
	}
	metrics := request(true, "GET", "/metrics", "Cookie: __Host-berth=withdrawn")
	if _, err := newConsole(t).send(metrics, ""); !isDenied(err) {
		t.Errorf("GET /metrics: %v", err)
	}
}

// A cookie whose issuer does not answer locks nobody out of what needs no role. The calls that
// need a role fail with UNAVAILABLE.
func TestACookieOfAnIssuerThatDoesNotAnswer(t *testing.T) {
	p := newIdentityProvider(t)
	p.answer(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	c := newConsole(t)
	c.Access = open(t, p.file(t))
	cookie := "Cookie: __Host-berth=" + p.token(t, "k", p.claims(nil))
	for path, method := range map[string]string{"/": "", "/healthz": "", "/queues": "", "/assets/main.js": "",
		"/v1/caller": berthv1.Callers_GetCaller_FullMethodName} {
		if got, err := c.send(request(true, "GET", path, cookie), method); err != nil || got != nobody {
			t.Errorf("GET %s: %s, %v", path, got, err)
		}
	}
	for path, method := range map[string]string{"/metrics": "",
		"/v1/leaders": berthv1.Leaders_ListLeaders_FullMethodName} {
		if _, err := c.send(request(true, "GET", path, cookie), method); !fault.Is(err, fault.ReasonUnavailable) {
			t.Errorf("GET %s: %v", path, err)
		}
	}
	header := strings.Replace(cookie, "Cookie: __Host-berth=", "Authorization: Bearer ", 1)
	if _, err := c.send(request(true, "GET", "/queues", header), ""); !fault.Is(err, fault.ReasonUnavailable) {
		t.Errorf("a header: %v", err)
	}
}

// Only the public listener of a gateway with an access file reads cookies.
func TestOtherListenersReadNoCookie(t *testing.T) {
	for name, change := range map[string]func(*Guard){
		"--http-listen":  func(g *Guard) { g.Listener = Operations },
		"no access file": func(g *Guard) { g.Access = nil },
	} {
		c := newConsole(t)
		change(c.Guard)
		if got, err := c.send(request(false, "GET", "/healthz", "Cookie: berth=of-alice"), ""); got != "trusted" {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestCreateSession(t *testing.T) {
	long := strings.Repeat("x", maxCookie)
	for _, c := range []struct {
		name, token, want string
		kind              fault.Kind
		field             string
		change            func(*Guard)
	}{
		{name: "accepted", token: "of-alice", want: alice},
		{name: "unknown", token: "x", kind: fault.Denied},
		{name: "missing", kind: fault.Invalid, field: "token"},
		{name: "long, and unknown", token: long, kind: fault.Denied},
		{name: "too long", token: long + "x", kind: fault.Invalid, field: "token"},
		{name: "a space", token: "a b", kind: fault.Invalid, field: "token"},
		{name: "a semicolon", token: "a;b", kind: fault.Invalid, field: "token"},
		{name: "a comma", token: "a,b", kind: fault.Invalid, field: "token"},
		{name: "a quote", token: `a"b`, kind: fault.Invalid, field: "token"},
		{name: "a backslash", token: `a\b`, kind: fault.Invalid, field: "token"},
		{name: "a newline", token: "a\r\nSet-Cookie: x=y", kind: fault.Invalid, field: "token"},
		{name: "no ASCII", token: "ä", kind: fault.Invalid, field: "token"},
		{name: "no access file", token: "of-alice", kind: fault.Precondition, change: func(g *Guard) { g.Access = nil }},
	} {
		for _, encrypted := range []bool{true, false} {
			g := newConsole(t)
			if c.change != nil {
				c.change(g.Guard)
			}
			r := request(encrypted, "POST", "/session")
			ctx, set, err := g.CreateSession(r.WithContext(context.WithValue(r.Context(), callerKey{},
				Caller{Peer: "10.0.0.7:1"})), c.token)
			var line Entry
			if e := json.Unmarshal([]byte(g.audit.String()), &line); e != nil || line.Method != "POST /session" ||
				line.Peer != "10.0.0.7:1" || (line.Outcome == "OK") != (c.want != "") ||
				c.token != "" && len(c.token) > 3 && strings.Contains(g.audit.String(), c.token) {
				t.Errorf("%s: audit log %s", c.name, g.audit.String())
			}
			if c.want == "" {
				f := fault.Of(err)
				if set != nil || err == nil || f.Kind != c.kind || c.field != "" && f.Fields[0].Name != c.field {
					t.Errorf("%s: cookie %v, error %v", c.name, set, err)
				}
				continue
			}
			if err != nil || CallerIn(ctx).String() != c.want || line.Caller != c.want {
				t.Fatalf("%s: caller %v, audit line %+v, error %v", c.name, CallerIn(ctx), line, err)
			}
			want := "berth=of-alice; Path=/; HttpOnly; SameSite=Strict"
			if encrypted {
				want = "__Host-berth=of-alice; Path=/; HttpOnly; Secure; SameSite=Strict"
			}
			if set.String() != want {
				t.Errorf("%s: cookie %s, want %s", c.name, set, want)
			}
			// The guard accepts its own cookie.
			if got, err := g.send(request(encrypted, "GET", "/v1/x", "Cookie: "+set.Name+"="+set.Value),
				berthv1.Leaders_ListLeaders_FullMethodName); got != c.want {
				t.Errorf("%s: the cookie identifies %s, %v", c.name, got, err)
			}
		}
	}
}

// A wrong token in the body gets the same error as one in the header.
func TestAWrongTokenOfASession(t *testing.T) {
	g := newConsole(t)
	_, _, body := g.CreateSession(request(true, "POST", "/session"), "x")
	_, header := g.send(request(true, "POST", "/session", "Authorization: Bearer x"), "")
	if body == nil || header == nil || body.Error() != header.Error() || fault.Of(body).Reason != fault.Of(header).Reason {
		t.Errorf("in the body: %v, in the header: %v", body, header)
	}
}

func TestDeleteSession(t *testing.T) {
	g := newConsole(t)
	var names []string
	for _, c := range g.DeleteSession(request(true, "DELETE", "/session")) {
		if names = append(names, c.Name); c.Value != "" || c.MaxAge >= 0 || c.Path != "/" || !c.HttpOnly ||
			c.Secure != (c.Name == encryptedCookie) {
			t.Errorf("cookie %s", c)
		}
	}
	if !slices.Equal(names, []string{encryptedCookie, plainCookie}) || !strings.Contains(g.audit.String(),
		`"method":"DELETE /session","outcome":"OK"`) {
		t.Errorf("cookies %v, audit log %s", names, g.audit.String())
	}
}

func TestCookiesAreNotPassedOn(t *testing.T) {
	md := metadata.Pairs("cookie", "a", "grpcgateway-cookie", "a", "authorization", "a", "grpcgateway-authorization", "a",
		MetaCaller, "a", "traceparent", "b")
	DeleteProofs(md)
	if got := slices.Collect(maps.Keys(md)); !slices.Equal(got, []string{"traceparent"}) {
		t.Errorf("%v is passed on", got)
	}
}

// The methods of a caller are those that the guard admits.
func TestMethodsOfACaller(t *testing.T) {
	callers := []Caller{{}, {Trusted: true}}
	for _, role := range identity.Roles {
		callers = append(callers, Caller{Identity: &identity.Identity{Cluster: cluster, Role: role, Name: "a"}})
	}
	for _, c := range callers {
		got := c.Methods(Public)
		if !slices.IsSorted(got) {
			t.Errorf("%v: not sorted: %v", c, got)
		}
		for _, rule := range Rules() {
			if rule.Listener != Public {
				continue
			}
			err := (&Guard{Listener: Public}).admit(c, transport.Unknown, rule.Method)
			if slices.Contains(got, strings.TrimPrefix(rule.Method, "/")) != (err == nil) {
				t.Errorf("%v: %s: %v", c, rule.Method, err)
			}
		}
		if resigns := slices.Contains(got, "berth.v1.Leaders/Resign"); resigns != (c.Trusted || c.Identity != nil &&
			c.Identity.Role == operator) {
			t.Errorf("%v: %v", c, got)
		}
		if slices.Contains(got, "berth.control.v1.Executor/SubmitTask") {
			t.Errorf("%v: a method of another listener", c)
		}
	}
}
