package watch_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/pkg/access"
	"berth.dev/pkg/transport"
	"berth.dev/services/gateway/internal/rest"
	"berth.dev/services/gateway/internal/watch"
)

// services answers every call with an empty message, and the list of executors with an executor
// whose ID is the caller.
type services struct{ grpc.ClientConnInterface }

func (services) Invoke(ctx context.Context, _ string, _, out any, _ ...grpc.CallOption) error {
	if list, ok := out.(*berthv1.ListExecutorsAnswer); ok {
		proto.Merge(list, &berthv1.ListExecutorsAnswer{
			Executors: []*berthv1.Executor{{Id: access.CallerIn(ctx).String()}}, Revision: 7})
	}
	return nil
}

// gateway is a server with the REST handler of a gateway.
type gateway struct {
	*testing.T
	url   string
	audit string // the file of the audit log

	mu   sync.Mutex
	jobs []string // the names of the job services that opened streams
}

// serveREST starts a gateway with the tenants and the tokens of an access file. A token is the
// name of its holder.
func serveREST(t *testing.T, tenants string, roles map[string]string) *gateway {
	t.Helper()
	dir := t.TempDir()
	text := "tokens:\n"
	for name, role := range roles {
		text += fmt.Sprintf("- {role: %s, name: %s, sha256: %x}\n", role, name, sha256.Sum256([]byte(name)))
	}
	file := filepath.Join(dir, "access.yaml")
	if err := os.WriteFile(file, []byte(text+tenants), 0o600); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	permitted, err := access.Open(file, "default", quiet)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{T: t, audit: filepath.Join(dir, "audit")}
	audit, err := access.OpenAudit(g.audit, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	life, stop := context.WithCancel(t.Context())
	guard := &access.Guard{Listener: access.Public, Cluster: "default", Access: permitted, Audit: audit}
	watches := watch.NewServer(life, watch.Options{Patience: patience, Heartbeat: heartbeat, Guard: guard,
		Admit: func(job string) (func(error), error) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.jobs = append(g.jobs, job)
			return func(error) {}, nil
		},
	})
	ok := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	handler, err := rest.New(rest.Options{Calls: services{}, Leaders: berthv1.UnimplementedLeadersServer{},
		Explanations: berthv1.UnimplementedExplanationsServer{}, Findings: berthv1.UnimplementedFindingsServer{},
		Tenants: berthv1.UnimplementedTenantsServer{}, Outputs: berthv1.UnimplementedOutputsServer{},
		Events: ok, Ops: ok, Guard: guard,
		Watch: func(calls rest.Calls) http.Handler { return watches.Handler(calls) },
	})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewUnstartedServer(handler)
	transport.ServeHTTP(web.Config)
	web.Start()
	var run sync.WaitGroup
	run.Go(func() { watches.Run(life) }) //nolint:errcheck // it returns nil
	t.Cleanup(func() {
		stop()
		web.Close()
		run.Wait()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		permitted.Close()
		audit.Close()
	})
	g.url = web.URL
	return g
}

// get requests a watch with a method and the parameters of a query. If token is empty, the
// caller is trusted.
func (g *gateway) get(method, token, accept string, parameters ...string) *http.Response {
	g.Helper()
	request, err := http.NewRequestWithContext(g.Context(), method, g.url+"/v1/watch?"+strings.Join(parameters, "&"), nil)
	if err != nil {
		g.Fatal(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if accept != "" {
		request.Header.Set("Accept", accept)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { answer.Body.Close() })
	return answer
}

// watch returns the data of the first event of each path.
func (g *gateway) watch(token string, paths ...string) []string {
	g.Helper()
	var parameters, events []string
	for _, path := range paths {
		parameters = append(parameters, "path="+url.QueryEscape(path))
	}
	answer := g.get("GET", token, "text/event-stream", parameters...)
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		g.Fatalf("%s %s", answer.Status, text)
	}
	for lines := bufio.NewScanner(answer.Body); len(events) < len(paths) && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			events = append(events, data)
		}
	}
	slices.Sort(events)
	return events
}

// Each path is a call of the stream's caller: it has the answer of that caller, and an error if
// the caller may not make the call. The other paths continue.
func TestEachPathIsACallOfItsCaller(t *testing.T) {
	g := serveREST(t, "", map[string]string{"alice": "viewer", "bob": "autoscaler", "train": "job"})
	executor := func(caller string) string {
		return `{"path":"/v1/executors","answer":{"executors":[{"id":"` + caller + `",`
	}
	denied := func(path string) string {
		return `{"path":"` + path + `","error":{"code":7,"message":"`
	}
	for _, c := range []struct {
		token string
		paths []string
		want  []string
	}{
		{"", []string{"/v1/executors"}, []string{executor("trusted")}},
		{"alice", []string{"/v1/executors", "/v1/skus"},
			[]string{executor("berth://default/viewer/alice"), `{"path":"/v1/skus","answer":{"skus":[]}`}},
		{"bob", []string{"/v1/executors", "/v1/findings"},
			[]string{executor("berth://default/autoscaler/bob"), denied("/v1/findings")}},
		{"train", []string{"/v1/assignments?job=eval", "/v1/assignments?job=train-1", "/v1/executors", "/v1/skus?x=1"},
			[]string{denied("/v1/assignments?job=eval"), `{"path":"/v1/assignments?job=train-1","answer":`,
				denied("/v1/executors"), `{"path":"/v1/skus?x=1","error":{"code":3,`}},
	} {
		got := g.watch(c.token, c.paths...)
		for i, want := range c.want {
			if len(got) != len(c.want) || !strings.HasPrefix(got[i], want) {
				t.Errorf("%s: event %d is %s, want %s…", c.token, i, got, want)
			}
		}
	}
	if want := []string{"", "", "", "train"}; !slices.Equal(g.jobs, want) {
		t.Errorf("streams were counted for %q, want %q", g.jobs, want)
	}
	// The audit log has each rejected call, once.
	text, err := os.ReadFile(g.audit)
	if err != nil || strings.Count(string(text), "\n") != 3 || strings.Count(string(text), `"outcome":"PermissionDenied"`) != 3 ||
		!strings.Contains(string(text), `"method":"berth.v1.Findings/ListFindings"`) {
		t.Errorf("%s %v", text, err)
	}
	// A caller with an unknown token has no stream.
	if answer := g.get("GET", "mallory", "", "path=/v1/skus"); answer.StatusCode != http.StatusForbidden {
		t.Errorf("an unknown caller: %s", answer.Status)
	}
}

// The calls of a watch count as requests of the job service's tenant.
func TestTheRateOfATenantApplies(t *testing.T) {
	const tenants = "tenants:\n- {name: train, prefix: train, limits: {requestsPerSecond: 0.001}}\n"
	g := serveREST(t, tenants, map[string]string{"train": "job", "eval": "job"})
	if got := g.watch("eval", "/v1/skus"); !strings.Contains(got[0], `"answer"`) {
		t.Errorf("another tenant: %s", got)
	}
	// The stream itself is the only request that the limit allows.
	if got := g.watch("train", "/v1/skus"); !strings.Contains(got[0], "TENANT_LIMIT") {
		t.Errorf("got %s", got)
	}
	if answer := g.get("GET", "train", "", "path=/v1/skus"); answer.StatusCode != http.StatusTooManyRequests {
		t.Errorf("another stream: %s", answer.Status)
	}
}

func TestRefusedRequests(t *testing.T) {
	g := serveREST(t, "", map[string]string{"alice": "viewer"})
	path := func(path string) []string { return []string{"path=" + url.QueryEscape(path)} }
	many := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("path=/v1/skus/%d", i))
		}
		return all
	}
	const gang = "/v1/jobs/j/stages/s/reservation"
	for _, c := range []struct {
		name, method, accept string
		parameters           []string
		status               int
		want                 string
	}{
		{"no path", "GET", "", nil, 400, `"field":"path"`},
		{"seventeen paths", "GET", "", many(17), 400, `"field":"path"`},
		{"equal paths", "GET", "", []string{"path=/v1/skus", "path=/v1/skus"}, 400, `"field":"path"`},
		{"long path", "GET", "", path("/v1/executors?sku=" + strings.Repeat("a", 2048)), 400, `"field":"path"`},
		{"no call", "GET", "", path("/v1/nothing"), 400, `"field":"path"`},
		{"empty path", "GET", "", path(""), 400, `"field":"path"`},
		{"another host", "GET", "", path("http://example.com/v1/skus"), 400, `"field":"path"`},
		{"no call of the API", "GET", "", path("/metrics"), 400, `"field":"path"`},
		{"itself", "GET", "", path("/v1/watch?path=/v1/skus"), 400, `"field":"path"`},
		{"itself, escaped", "GET", "", path("/v1/%77atch?path=/v1/skus"), 400, `"field":"path"`},
		{"unclean path", "GET", "", path("/v1/skus/../watch"), 400, `"field":"path"`},
		{"not UTF-8", "GET", "", path("/v1/skus/%ff"), 400, `"field":"path"`},
		{"bad escape", "GET", "", path("/v1/skus/%zz"), 400, `"field":"path"`},
		{"a stream", "GET", "", path("/v1/jobs/j/events"), 400, `"field":"path"`},
		{"a call that changes", "GET", "", path("/v1/executors:disable"), 400, `"field":"path"`},
		{"output", "GET", "", path("/v1/jobs/j/stages/s/workers/1/output"), 400, `"field":"path"`},
		{"waiting for members", "GET", "", path(gang + ":members?cursor=1"), 400, `"field":"path"`},
		{"waiting for members by name", "GET", "", path("/v1/jobs/j/stages/s/reservations/n:members?cursor"), 400,
			`"field":"path"`},
		{"misspelt parameter", "GET", "", []string{"path=/v1/skus", "sinze=1"}, 400, `"field":"sinze"`},
		{"unreadable parameter", "GET", "", []string{"path=/v1/skus", "%ff=1"}, 400, "\"field\":\"\ufffd\""},
		{"malformed query", "GET", "", []string{"path=/v1/skus", "since=%zz"}, 400, "the query cannot be read"},
		{"malformed cursor", "GET", "", []string{"path=/v1/skus", "since=x"}, 400, `"field":"since"`},
		{"JSON", "GET", "application/json", path("/v1/skus"), 406, "text/event-stream"},
		{"HEAD", "HEAD", "", path("/v1/skus"), 405, ""},
		{"POST", "POST", "", path("/v1/skus"), 404, "NOT_FOUND"},
		{"any type", "GET", "application/json, */*;q=0.1", path("/v1/skus"), 200, ""},
		{"sixteen paths", "GET", "*/*", many(16), 200, ""},
		{"members", "GET", "", path(gang + ":members"), 200, ""},
		{"an escaped name", "GET", "", path("/v1/skus/a%2Fb"), 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			answer := g.get(c.method, "alice", c.accept, c.parameters...)
			if answer.StatusCode == http.StatusOK && c.status == http.StatusOK {
				return
			}
			text, err := io.ReadAll(answer.Body)
			if answer.StatusCode != c.status || !strings.Contains(string(text), c.want) || err != nil {
				t.Errorf("%s %s %v", answer.Status, text, err)
			}
		})
	}
}

// FuzzRequests checks that every refused request names one of its parameters.
func FuzzRequests(f *testing.F) {
	for _, query := range []string{"path=/v1/skus&since=AAAAAAAAAAA", "path=%2Fv1%2Fskus%3Fa%3D1&path=/v1/leaders", "path=x",
		"since=x", "%ff=1"} {
		f.Add(query)
	}
	server := watch.NewServer(f.Context(), watch.Options{
		Admit: func(string) (func(error), error) {
			return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "accepted")
		}})
	handler := server.Handler(&calls{})
	f.Fuzz(func(t *testing.T, query string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, &http.Request{Method: http.MethodGet, URL: &url.URL{RawQuery: query}, Header: http.Header{}})
		if text := w.Body.String(); w.Code != http.StatusNotFound && !strings.Contains(text, `"fieldViolations"`) &&
			!strings.Contains(text, "the query cannot be read") {
			t.Errorf("%d %s", w.Code, text)
		}
	})
}
