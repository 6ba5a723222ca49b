package rest_test

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/fault"
	"berth.dev/api/rpc"
	"berth.dev/pkg/access"
	"berth.dev/pkg/transport"
	"berth.dev/services/gateway/internal/rest"
)

// calls is a connection that returns the given answer or error and stores the last request.
type calls struct {
	grpc.ClientConnInterface
	method string
	in     proto.Message
	answer proto.Message
	err    error
}

func (c *calls) Invoke(_ context.Context, method string, in, out any, _ ...grpc.CallOption) error {
	c.method, c.in = method[strings.LastIndex(method, "/")+1:], in.(proto.Message)
	if c.err != nil {
		return rpc.ToStatus(c.err)
	}
	if c.answer != nil {
		proto.Merge(out.(proto.Message), c.answer)
	}
	return nil
}

type noLeaders struct {
	berthv1.UnimplementedLeadersServer
}

func (noLeaders) ListLeaders(context.Context, *berthv1.ListLeadersRequest) (*berthv1.ListLeadersAnswer, error) {
	return &berthv1.ListLeadersAnswer{Services: []*berthv1.ServiceLeadership{{Service: "registry"}}}, nil
}

// asked implements the gateway's own methods. Each answer repeats the request.
type asked struct {
	berthv1.UnimplementedExplanationsServer
	berthv1.UnimplementedFindingsServer
	berthv1.UnimplementedTenantsServer
	berthv1.UnimplementedOutputsServer
	berthv1.UnimplementedCallersServer
	berthv1.UnimplementedAuditLogServer
}

func (asked) GetCaller(ctx context.Context, _ *berthv1.GetCallerRequest) (*berthv1.Caller, error) {
	return &berthv1.Caller{Identity: access.CallerIn(ctx).String()}, nil
}

func (asked) ListAuditEntries(_ context.Context,
	q *berthv1.ListAuditEntriesRequest) (*berthv1.ListAuditEntriesAnswer, error) {
	return &berthv1.ListAuditEntriesAnswer{NextPageToken: q.String()}, nil
}

func (asked) ReadOutput(_ context.Context, q *berthv1.ReadOutputRequest) (*berthv1.ReadOutputAnswer, error) {
	return &berthv1.ReadOutputAnswer{Executor: q.GetExecutor(), Number: q.GetNumber(), Data: []byte(q.String())}, nil
}

func (asked) ExplainReservation(_ context.Context, q *berthv1.ExplainReservationRequest) (*berthv1.Explanation, error) {
	if q.GetJob() == "gone" {
		return nil, fault.New(fault.NotFound, fault.ReasonNotFound, "reservation not found")
	}
	return &berthv1.Explanation{Message: "why " + q.GetJob() + "/" + q.GetStage() + "/" + q.GetName() + " waits"}, nil
}

func (asked) ListFindings(context.Context, *berthv1.ListFindingsRequest) (*berthv1.ListFindingsAnswer, error) {
	return &berthv1.ListFindingsAnswer{Findings: []*berthv1.Finding{{Kind: "MASS_LOSS"}}}, nil
}

func (asked) ListTenants(context.Context, *berthv1.ListTenantsRequest) (*berthv1.ListTenantsAnswer, error) {
	train := &berthv1.Tenant{Name: "train", Use: &berthv1.TenantUse{Workers: 7}}
	return &berthv1.ListTenantsAnswer{Tenants: []*berthv1.Tenant{train}}, nil
}

// ask sends a request and returns the status and the body of the answer.
func ask(t *testing.T, c *calls, method, path, body string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	// httptest sets this Host in its requests.
	handler(t, c, "example.com").ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func handler(t *testing.T, c *calls, names ...string) http.Handler {
	t.Helper()
	return handlerWith(t, c, func(rest.Calls) {}, names...)
}

// handlerWith is handler. It calls use with the calls for a watch.
func handlerWith(t *testing.T, c *calls, use func(rest.Calls), names ...string) http.Handler {
	t.Helper()
	text := func(s string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, s) //nolint:errcheck // a recorder takes everything
		})
	}
	h, err := rest.New(rest.Options{Guard: &access.Guard{Listener: access.Public},
		Calls: c, Leaders: noLeaders{}, Explanations: asked{}, Findings: asked{}, Tenants: asked{}, Outputs: asked{},
		Callers: asked{}, AuditLog: asked{}, Events: text("events"), Ops: text("ops"), Names: names,
		Watch: func(calls rest.Calls) http.Handler {
			use(calls)
			return text("watch")
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	// The callers have connections in plain text.
	server := &http.Server{}
	transport.ServeHTTP(server)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(server.ConnContext(r.Context(), &net.TCPConn{})))
	})
}

func TestEveryPathReachesItsMethod(t *testing.T) {
	for _, c := range []struct{ method, path, want string }{
		{"PUT", "/v1/jobs/j/stages/s/reservation?requestId=r&ifEpoch=7", "UpsertReservation"},
		{"PUT", "/v1/jobs/j/stages/s/reservations/n?requestId=r&ifEpoch=7", "UpsertReservation"},
		{"GET", "/v1/jobs/j/stages/s/reservation?name=n", "GetReservation"},
		{"GET", "/v1/jobs/j/stages/s/reservations/replace-3-2", "GetReservation"},
		{"DELETE", "/v1/jobs/j/stages/s/reservation?requestId=r&ifEpoch=7", "CancelReservation"},
		{"DELETE", "/v1/jobs/j/stages/s/reservations/n?requestId=r&ifEpoch=7", "CancelReservation"},
		{"POST", "/v1/jobs/j/stages/s/reservation:bind", "BindReservation"},
		{"POST", "/v1/jobs/j/stages/s/reservations/n:bind", "BindReservation"},
		{"DELETE", "/v1/jobs/j?requestId=r", "CancelJob"},
		{"GET", "/v1/reservations?job=j&stage=s&state=QUEUED&pageSize=5&pageToken=t", "ListReservations"},
		{"GET", "/v1/reservations?group=e8c5f666f96605a3&pageSize=5", "ListReservations"},
		{"GET", "/v1/reservations:pending?pageSize=5&pageToken=t", "ListPending"},
		{"GET", "/v1/reservations:pendingHistory", "GetPendingHistory"},
		{"POST", "/v1/reservations:flush", "FlushReservations"},
		{"POST", "/v1/jobs/j/stages/s/workers:cancel", "CancelWorkers"},
		{"POST", "/v1/jobs/j/stages/s/workers:signal", "SignalWorkers"},
		{"POST", "/v1/registry:markReady", "MarkReady"},
		{"GET", "/v1/executors?sku=small&pool=p&state=READY", "ListExecutors"},
		{"GET", "/v1/executors?attributes[zone]=a&attributes%5Brack.row%5D=7", "ListExecutors"},
		{"GET", "/v1/executors/host-1.example", "GetExecutor"},
		{"POST", "/v1/executors:disable", "DisableExecutors"},
		{"POST", "/v1/executors:enable", "EnableExecutors"},
		{"POST", "/v1/executors/host-1.example:drain", "DrainExecutor"},
		{"POST", "/v1/executors/host-1.example:clearQuarantine", "ClearQuarantine"},
		{"GET", "/v1/usage/idle?sku=small&max=3", "ListIdleExecutors"},
		{"POST", "/v1/usage:claimForScaleDown", "ClaimForScaleDown"},
		{"GET", "/v1/usage?sku=small", "GetUsage"},
		{"GET", "/v1/skus", "ListSkus"},
		{"GET", "/v1/skus/gpu-8", "GetSku"},
		{"PUT", "/v1/skus/gpu-8", "PutSku"},
		{"DELETE", "/v1/skus/gpu-8", "DeleteSku"},
		{"GET", "/v1/pools", "ListPools"},
		{"GET", "/v1/pools/night", "GetPool"},
		{"PUT", "/v1/pools/night", "PutPool"},
		{"DELETE", "/v1/pools/night", "DeletePool"},
		{"GET", "/v1/assignments?job=j&executor=e&state=RUNNING", "ListAssignments"},
		{"GET", "/v1/volumes?job=j&stage=s&executor=e&state=LOST&pageSize=5&pageToken=t", "ListVolumes"},
		{"POST", "/v1/volumes:delete", "DeleteVolumes"},
		{"POST", "/v1/volumes:abandon", "AbandonVolumes"},
	} {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			var got calls
			body := ""
			if c.method == "POST" {
				body = "{}"
			}
			if status, answer := ask(t, &got, c.method, c.path, body); status != 200 || got.method != c.want {
				t.Errorf("%d %s, method %q", status, answer, got.method)
			}
			// Each method rejects a parameter that it does not know.
			var sent calls
			path, _, _ := strings.Cut(c.path, "?")
			if status, answer := ask(t, &sent, c.method, path+"?nonsense=1", body); status != 400 || sent.method != "" ||
				parse(t, answer).field() != "nonsense" {
				t.Errorf("with nonsense: %d %s, sent %q", status, answer, sent.method)
			}
		})
	}
}

// TestAnswersAndErrorsAreCompact also tests Compact itself, because protojson adds spaces in
// only one half of all builds.
func TestAnswersAndErrorsAreCompact(t *testing.T) {
	if got := string(rest.Compact([]byte(`{"a": 1, "b": "c, d"}`))); got != `{"a":1,"b":"c, d"}` {
		t.Errorf("got %s", got)
	}
	for path, want := range map[string]string{
		"/v1/skus/a":           `{"name":"","resources":{},"attributes":{}}`,
		"/v1/leaders?reason=a": `{"code":3,"message":"`,
	} {
		if _, body := ask(t, &calls{}, "GET", path, ""); !strings.HasPrefix(body, want) {
			t.Errorf("%s: got %s, want %s", path, body, want)
		}
	}
}

func TestTheGatewaysOwnAnswers(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/leaders":       `"registry"`,
		"/v1/findings":      `"MASS_LOSS"`,
		"/v1/tenants":       `"workers":7`,
		"/v1/caller":        `"identity":"trusted"`,
		"/v1/audit":         `"nextPageToken":""`,
		"/v1/jobs/j/events": "events",
		"/v1/watch":         "watch",

		"/v1/jobs/j/stages/s/reservation:explain":              "why j/s/ waits",
		"/v1/jobs/j/stages/s/reservation:explain?name=n":       "why j/s/n waits",
		"/v1/jobs/j/stages/s/reservations/replace-3-2:explain": "why j/s/replace-3-2 waits",

		"/healthz":      "ops",
		"/readyz":       "ops",
		"/leaderz":      "ops",
		"/metrics":      "ops",
		"/openapi.json": `"openapi": "3.1.1"`,
		"/":             "all or none",
	} {
		if status, body := ask(t, &calls{}, "GET", path, ""); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

func TestJSONIsStrict(t *testing.T) {
	const put = "/v1/jobs/j/stages/s/reservation"
	for _, c := range []struct{ name, method, path, body, field string }{
		{"unknown field", "PUT", put, `{"workerz":1}`, "workerz"},
		{"unknown field inside", "PUT", put, `{"constraints":{"skew":"x"}}`, "constraints.skew"},
		{"field twice", "PUT", put, `{"count":1,"count":2}`, "count"},
		{"unknown enum", "PUT", put, `{"batch":"SOMETIMES"}`, "batch"},
		{"unknown enum inside", "PUT", put, `{"priority":{"class":"SOMETIMES"}}`, "priority.class"},
		{"field twice inside", "PUT", put,
			"{\n  \"labels\": {\"ä\": \"{[,\"},\n  \"constraints\": {\"sku\": \"a\", \"sku\": \"b\"}}", "constraints.sku"},
		{"wrong type in the second worker", "PUT", put, `{"workers":[{"index":1,"number":2},{"index":-0.5}]}`,
			"workers[1].index"},
		{"wrong type in a map", "PUT", put, `{"constraints":{"resources":{"cpu":100,"gpu":"many"}}}`,
			"constraints.resources.gpu"},
		{"wrong type of a duration", "PUT", put, `{"task":{"command":"x","stopGrace":"long"}}`, "task.stopGrace"},
		{"a number for an object", "PUT", put, `{"constraints":3}`, "constraints"},
		{"wrong type", "PUT", put, `{"targetSize":"many"}`, "targetSize"},
		{"unknown field of a command", "POST", "/v1/reservations:flush", `{"jbo":"j"}`, "jbo"},
		{"unknown field of a worker", "POST", "/v1/jobs/j/stages/s/workers:cancel", `{"workers":[{"indx":1}]}`,
			"workers[0].indx"},
		{"wrong type in a worker", "POST", "/v1/jobs/j/stages/s/workers:cancel", `{"workers":[{"index":"x"}]}`,
			"workers[0].index"},
		{"unknown field of a selector", "POST", "/v1/executors:disable", `{"selector":{"id":["a"]}}`, "selector.id"},
		{"unknown field of a drain", "POST", "/v1/executors/a:drain", `{"until":"now"}`, "until"},
		{"unknown field of a claim", "POST", "/v1/usage:claimForScaleDown", `{"count":1}`, "count"},
		{"unknown field of a SKU", "PUT", "/v1/skus/a", `{"resource":{}}`, "resource"},
		{"unknown field of a pool", "PUT", "/v1/pools/a", `{"lostafter":"1s"}`, "lostafter"},
		{"reserved field of a pool", "PUT", "/v1/pools/a", `{"queuePolicy":"x"}`, "queuePolicy"},
		{"unknown parameter of usage", "GET", "/v1/usage?skus=a", "", "skus"},
		{"unknown parameter of an explanation", "GET", "/v1/jobs/j/stages/s/reservation:explain?deep=1", "", "deep"},
		{"index of a worker", "GET", "/v1/jobs/j/stages/s/workers/x/output", "", "index"},
		{"large index of a worker", "GET", "/v1/jobs/j/stages/s/workers/9999999999/output", "", "index"},
		{"unknown parameter of output", "GET", "/v1/jobs/j/stages/s/workers/1/output?lines=9", "", "lines"},
		{"unknown stream of output", "GET", "/v1/jobs/j/stages/s/workers/1/output?stream=stdout", "", "stream"},
		{"wrong tail of output", "GET", "/v1/jobs/j/stages/s/workers/1/output?tail=1k", "", "tail"},
		{"unreadable parameter of leaders", "GET", "/v1/leaders?%ff=a", "", "\ufffd"},
		{"unknown parameter of leaders", "GET", "/v1/leaders?service=a", "", "service"},
		{"unknown field of a resignation", "POST", "/v1/leaders/registry:resign", `{"replica":"a"}`, "replica"},
		{"unknown parameter of a caller", "GET", "/v1/caller?role=a", "", "role"},
		{"unknown parameter of the audit log", "GET", "/v1/audit?caller=a", "", "caller"},
		{"wrong page size of the audit log", "GET", "/v1/audit?pageSize=x", "", "pageSize"},
		{"unknown field of a session", "POST", "/session", `{"bearer":"x"}`, "bearer"},
		{"wrong type of a token", "POST", "/session", `{"token":1}`, "token"},
		{"unknown parameter of a session", "POST", "/session?token=x", `{"token":"x"}`, "token"},
		{"unknown parameter of findings", "GET", "/v1/findings?kind=a", "", "kind"},
		{"not JSON", "PUT", put, `{"count":`, ""},
		{"more than one value", "PUT", put, `{"count":1} {"count":2}`, ""},
		{"a list", "PUT", put, `[1]`, ""},
		{"unknown parameter", "GET", "/v1/reservations?stat=QUEUED", "", "stat"},
		{"unknown enum in a parameter", "GET", "/v1/reservations?state=SOMETIMES", "", "state"},
		{"wrong type of a parameter", "GET", "/v1/reservations?pageSize=many", "", "pageSize"},
		{"a map without a key", "GET", "/v1/executors?attributes=zone", "", "attributes"},
		{"a map with an empty key", "GET", "/v1/executors?attributes[]=a", "", "attributes[]"},
		{"an unclosed key", "GET", "/v1/executors?attributes[zone=a", "", "attributes[zone"},
		{"two keys", "GET", "/v1/executors?attributes[zone][row]=a", "", "attributes[zone][row]"},
		{"a key with a line break", "GET", "/v1/executors?attributes[zo%0Ane]=a", "", "attributes[zo\nne]"},
		{"a key twice", "GET", "/v1/executors?attributes[zone]=a&attributes[zone]=b", "", "attributes[zone]"},
		{"a value that is not UTF-8", "GET", "/v1/executors?attributes[zone]=%FF", "", "attributes[zone]"},
		{"a key of a text", "GET", "/v1/executors?sku[zone]=a", "", "sku[zone]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var sent calls
			status, body := ask(t, &sent, c.method, c.path, c.body)
			if status != 400 || sent.method != "" {
				t.Errorf("%d %s, sent %q", status, body, sent.method)
			}
			got := parse(t, body)
			if got.Code != 3 || got.reason() != "INVALID" || got.field() != c.field ||
				strings.Contains(got.Message, "proto:") && c.field != "" {
				t.Errorf("got %s", body)
			}
		})
	}
}

// A parameter sets the element of a map.
func TestAParameterSetsAnElementOfAMap(t *testing.T) {
	var got calls
	status, body := ask(t, &got, "GET", "/v1/executors?attributes[zone]=a&attributes%5Brack.row%5D=7&pageSize=5", "")
	want := map[string]string{"zone": "a", "rack.row": "7"}
	q, ok := got.in.(*berthv1.ListExecutorsRequest)
	if !ok || !maps.Equal(q.GetAttributes(), want) || q.GetPageSize() != 5 {
		t.Errorf("%d %s, sent %v", status, body, got.in)
	}
}

// Calls finds the pattern of a path without a call, and bounds the size of an answer.
func TestCallsOfOtherHandlers(t *testing.T) {
	c := &calls{answer: &berthv1.Sku{Name: strings.Repeat("a", 100)}}
	var inner rest.Calls
	handlerWith(t, c, func(calls rest.Calls) { inner = calls })
	at := &url.URL{Path: "/v1/skus/a"}
	if got := inner.Pattern(at); got != "/v1/skus/{name=*}" || c.method != "" {
		t.Errorf("the pattern is %q after the call %q", got, c.method)
	}
	if got := inner.Pattern(&url.URL{Path: "/v1/watch"}); got != "" {
		t.Errorf("the pattern is %q", got)
	}
	ctx, err := (&access.Guard{Listener: access.Public}).Repeat(t.Context(), access.Caller{Trusted: true})
	if err != nil {
		t.Fatal(err)
	}
	status, body := inner.Get(ctx, at, 1000)
	if status != 200 || !strings.HasPrefix(string(body), `{"name":"aaa`) || !strings.HasSuffix(string(body), "}") {
		t.Errorf("%d %s", status, body)
	}
	if status, body := inner.Get(ctx, at, 100); status != 400 || parse(t, string(body)).reason() != "TOO_LARGE" {
		t.Errorf("%d %s", status, body)
	}
}

// failure is the google.rpc.Status as a client decodes it.
type failure struct {
	Code    int
	Message string
	Details []struct {
		Type            string `json:"@type"`
		Reason, Domain  string
		Metadata        map[string]string
		FieldViolations []struct{ Field, Description string }
	}
}

func parse(t *testing.T, body string) (f failure) {
	t.Helper()
	if err := json.Unmarshal([]byte(body), &f); err != nil || len(f.Details) == 0 || f.Details[0].Domain != "berth" {
		t.Fatalf("no status with a reason: %s", body)
	}
	return f
}

func (f failure) reason() string { return f.Details[0].Reason }

func (f failure) field() string {
	if len(f.Details) < 2 || len(f.Details[1].FieldViolations) != 1 {
		return ""
	}
	return f.Details[1].FieldViolations[0].Field
}

// An escaped character is part of the name. A name with such a character is therefore
// rejected, and never changes the path.
func TestAnEscapedNameIsOneName(t *testing.T) {
	for path, want := range map[string]string{
		"/v1/jobs/a%2Fb/stages/s/reservation":      "a/b",
		"/v1/jobs/a%2fb/stages/s/reservation":      "a/b",
		"/v1/jobs/a%2F%2Fb/stages/s/reservation":   "a//b",
		"/v1/jobs/%2E%2E/stages/s/reservation":     "..",
		"/v1/jobs/a%2541/stages/s/reservation":     "a%41",
		"/v1/jobs/a%20b/stages/s/reservation":      "a b",
		"/v1/jobs/%61bc/stages/s/reservation":      "abc",
		"/v1/jobs/a:b/stages/s/reservation":        "a:b",
		"/v1/jobs/a%3Fb/stages/s/reservations/%6E": "a?b",
	} {
		var c calls
		status, body := ask(t, &c, "PUT", path, "")
		if r, ok := c.in.(*berthv1.UpsertReservationRequest); !ok || r.GetReservation().GetJob() != want {
			t.Errorf("%s: %d %s, sent %v", path, status, body, c.in)
		}
	}
	for _, path := range []string{"/v1/jobs//stages/s/reservation", "/v1/jobs/j/stages//reservation",
		"/v1/../v1/reservations", "/v1/reservations/"} {
		var c calls
		status, body := ask(t, &c, "PUT", path, "")
		if parse(t, body); status != 404 || c.method != "" {
			t.Errorf("%s: %d %s, sent %q", path, status, body, c.method)
		}
	}
}

// The path and the query set the fields of a request for output.
func TestOutputOverREST(t *testing.T) {
	const stderr = berthv1.ReadOutputRequest_STDERR
	for query, want := range map[string]*berthv1.ReadOutputRequest{
		"":                                      {},
		"?tail=0&follow=true&stream=STDERR":     {Tail: proto.Int32(0), Follow: true, Stream: stderr},
		"?offset=0&number=2&epoch=7&executor=e": {Offset: proto.Int64(0), Number: 2, Epoch: 7, Executor: "e"},
	} {
		want.Job, want.Stage, want.Index = "j", "s", 3
		code, body := ask(t, &calls{}, "GET", "/v1/jobs/j/stages/s/workers/3/output"+query, "")
		var got struct {
			Data     []byte
			Executor string
		}
		if err := json.Unmarshal([]byte(body), &got); err != nil || code != 200 {
			t.Fatalf("%q: %d %s", query, code, body)
		}
		if string(got.Data) != want.String() || got.Executor != want.Executor {
			t.Errorf("%q: got %s, want %v", query, got.Data, want)
		}
	}
}

// If the body and the path name different reservations, the request is rejected.
func TestAReservationMustAgreeWithItsPath(t *testing.T) {
	const path = "/v1/jobs/j/stages/s/reservations/n"
	for body, field := range map[string]string{
		`{"count":1,"job":"other"}`:                    "job",
		`{"count":1,"stage":"other"}`:                  "stage",
		`{"count":1,"name":"other"}`:                   "name",
		`{"count":1,"job":"j","stage":"s","name":"n"}`: "",
		`{"count":1}`:                                  "",
	} {
		var c calls
		status, text := ask(t, &c, "PUT", path, body)
		if field == "name" {
			// The short path stands for the reservation named main.
			var main calls
			if status, text := ask(t, &main, "PUT", "/v1/jobs/j/stages/s/reservation", body); status != 400 ||
				parse(t, text).field() != field {
				t.Errorf("%s: %d %s", body, status, text)
			}
		}
		switch {
		case field == "" && (status != 200 || c.in.(*berthv1.UpsertReservationRequest).GetReservation().GetJob() != "j"):
			t.Errorf("%s: %d %s", body, status, text)
		case field != "" && (status != 400 || c.method != "" || parse(t, text).field() != field):
			t.Errorf("%s: %d %s, sent %q", body, status, text, c.method)
		}
	}
}

func TestABodyMustAgreeWithItsPath(t *testing.T) {
	for _, c := range []struct{ method, path, body, field string }{
		{"PUT", "/v1/skus/a", `{"name":"b"}`, "name"},
		{"PUT", "/v1/skus/a", `{"name":"a"}`, ""},
		{"PUT", "/v1/pools/a", `{"name":"b"}`, "name"},
		{"POST", "/v1/executors/a:drain", `{"id":"b"}`, "id"},
		{"POST", "/v1/executors/a:drain", `{"id":"a","reason":"x"}`, ""},
		{"POST", "/v1/jobs/j/stages/s/workers:cancel", `{"job":"k"}`, "job"},
		{"POST", "/v1/jobs/j/stages/s/workers:cancel", `{"stage":"k"}`, "stage"},
	} {
		var sent calls
		status, body := ask(t, &sent, c.method, c.path, c.body)
		switch {
		case c.field == "" && (status != 200 || sent.method == ""):
			t.Errorf("%s %s: %d %s", c.path, c.body, status, body)
		case c.field != "" && (status != 400 || sent.method != "" || parse(t, body).field() != c.field):
			t.Errorf("%s %s: %d %s, sent %q", c.path, c.body, status, body, sent.method)
		}
	}
}

// A request contains both the fields of the path and those of the body.
func TestCommandsAreComplete(t *testing.T) {
	for _, c := range []struct {
		method, path, body string
		want               proto.Message
	}{
		{"POST", "/v1/jobs/j/stages/s/workers:cancel",
			`{"requestId":"r","workers":[{"index":2,"number":1},{"index":"3","number":4}]}`,
			&berthv1.CancelWorkersRequest{Job: "j", Stage: "s", RequestId: "r",
				Workers: []*berthv1.WorkerID{{Index: 2, Number: 1}, {Index: 3, Number: 4}}}},
		{"POST", "/v1/reservations:flush", `{"requestId":"r","group":"g-1"}`,
			&berthv1.FlushReservationsRequest{Group: "g-1", RequestId: "r"}},
		{"POST", "/v1/executors:disable", `{"requestId":"r","selector":{"attributes":{"zone":"a"}},"expireTime":"2026-01-02T03:04:05Z","reason":"patch"}`,
			&berthv1.DisableExecutorsRequest{
				RequestId: "r", Selector: &berthv1.ExecutorSelector{Attributes: map[string]string{"zone": "a"}},
				ExpireTime: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), Reason: "patch",
			}},
		{"POST", "/v1/executors/e:drain", `{"requestId":"r","reason":"patch","expireTime":"2026-01-02T03:04:05Z"}`,
			&berthv1.DrainExecutorRequest{
				Id: "e", RequestId: "r", Reason: "patch", ExpireTime: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)),
			}},
		{"POST", "/v1/executors/e:clearQuarantine",
			`{"requestId":"r","workers":[{"job":"j","stage":"s","index":2,"number":1,"epoch":"7"}]}`,
			&berthv1.ClearQuarantineRequest{
				Executor: "e", RequestId: "r", Workers: []*berthv1.AssignedWorker{{Job: "j", Stage: "s", Index: 2, Number: 1,
					Epoch: 7}},
			}},
		{"POST", "/v1/volumes:delete", `{"ids":["v1","v2"],"executor":"e"}`,
			&berthv1.DeleteVolumesRequest{Ids: []string{"v1", "v2"}, Executor: "e"}},
		{"POST", "/v1/volumes:abandon", `{"ids":["v1"]}`, &berthv1.AbandonVolumesRequest{Ids: []string{"v1"}}},
		{"POST", "/v1/usage:claimForScaleDown", `{"requestId":"r","sku":"small","max":3}`,
			&berthv1.ClaimForScaleDownRequest{RequestId: "r", Sku: "small", Max: 3}},
		{"PUT", "/v1/skus/gpu-8", `{"resources":{"gpu":8},"scale":{"minIdle":1,"maxIdle":0,"cooldown":"15m","holdUntil":"2026-01-02T03:04:05Z"}}`,
			&berthv1.PutSkuRequest{Sku: &berthv1.Sku{
				Name: "gpu-8", Resources: map[string]int64{"gpu": 8},
				Scale: &berthv1.ScaleRule{MinIdle: 1, MaxIdle: proto.Int32(0), Cooldown: durationpb.New(15 * time.Minute),
					HoldUntil: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))},
			}}},
		{"PUT", "/v1/pools/night", `{"attributes":{"zone":"a"},"lostAfter":"0s"}`,
			&berthv1.PutPoolRequest{Pool: &berthv1.Pool{Name: "night", Attributes: map[string]string{"zone": "a"},
				LostAfter: durationpb.New(0)}}},
	} {
		var sent calls
		status, body := ask(t, &sent, c.method, c.path, c.body)
		if status != 200 {
			t.Errorf("%s: %d %s", c.path, status, body)
		}
		if diff := cmp.Diff(c.want, sent.in, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.path, diff)
		}
	}
}

func TestErrorsKeepTheirReason(t *testing.T) {
	for _, c := range []struct {
		err    *fault.Error
		status int
		code   int
	}{
		{fault.BadField(fault.ReasonRequired, "workers", "name some"), 400, 3},
		{fault.New(fault.NotFound, fault.ReasonNotFound, "no"), 404, 5},
		{fault.New(fault.Conflict, fault.ReasonEpochMismatch, "no"), 409, 10},
		{fault.New(fault.Precondition, fault.ReasonWorkerIDUsed, "no"), 412, 9},
		{fault.New(fault.Unavailable, fault.ReasonRegistryNotReady, "no").With("service", "registry"), 503, 14},
		{fault.New(fault.Exhausted, fault.ReasonOverloaded, "no"), 429, 8},
		{fault.New(fault.Internal, fault.ReasonInternal, "no"), 500, 13},
	} {
		status, body := ask(t, &calls{err: c.err}, "GET", "/v1/reservations", "")
		got := parse(t, body)
		if status != c.status || got.Code != c.code || got.reason() != string(c.err.Reason) || got.Message != c.err.Message {
			t.Errorf("%v: %d %s", c.err, status, body)
		}
		if diff := cmp.Diff(c.err.Meta, got.Details[0].Metadata); diff != "" {
			t.Error(diff)
		}
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v2", 404},
		{"GET", "/v1/nothing", 404},
		{"GET", "/v1/reservations:nothing", 404},
		{"GET", "/v1/reservations:flush", 405},
		{"POST", "/v1/executors:drain", 404},
		{"GET", "/v1/usage/busy", 404},
		{"GET", "/v1/jobs/gone/stages/s/reservation:explain", 404},
		{"POST", "/v1/reservations", 405},
		{"POST", "/v1/jobs/j/events", 404},
		{"POST", "/v1/watch", 404},
	} {
		status, body := ask(t, &calls{}, c.method, c.path, "")
		if parse(t, body); status != c.status {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, body)
		}
	}
}

// A browser gets the page, which names the path, and never a line of JSON. Programs get an error.
func TestABrowserGetsThePageAtEveryPath(t *testing.T) {
	for _, c := range []struct {
		method, path, accept string
		status               int
		page                 bool
	}{
		{"GET", "/findings", "text/html,*/*;q=0.8", 200, true},
		{"GET", "/search?q=train%2Fgpu%2F0.1", "text/html", 200, true},
		{"GET", "/jobs/a/b/c", "text/html", 200, true},
		{"GET", "/nothing", "text/html,*/*;q=0.8", 404, true},
		{"GET", "/nothing", "*/*", 404, false},
		{"POST", "/nothing", "text/html", 404, false},
		{"GET", "/v1/nothing", "text/html", 404, false},
		{"GET", "/assets/nothing.js", "text/html", 404, false},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(c.method, c.path, http.NoBody)
		r.Header.Set("Accept", c.accept)
		handler(t, &calls{}, "example.com").ServeHTTP(w, r)
		if page := strings.Contains(w.Body.String(), `<div id="app">`); w.Code != c.status || page != c.page {
			t.Errorf("%s %s for %s: %d %s", c.method, c.path, c.accept, w.Code, w.Body)
		}
	}
}

func TestAMutatingCallHasARequestID(t *testing.T) {
	type identified interface{ GetRequestId() string }
	for _, c := range []struct{ method, path string }{
		{"PUT", "/v1/jobs/j/stages/s/reservation"},
		{"DELETE", "/v1/jobs/j/stages/s/reservation"},
		{"DELETE", "/v1/jobs/j"},
	} {
		var first, second, own calls
		ask(t, &first, c.method, c.path, "")
		ask(t, &second, c.method, c.path, "")
		ask(t, &own, c.method, c.path+"?requestId=mine", "")
		a, b := first.in.(identified).GetRequestId(), second.in.(identified).GetRequestId()
		if a == "" || a == b {
			t.Errorf("%s %s: ids %q and %q", c.method, c.path, a, b)
		}
		if got := own.in.(identified).GetRequestId(); got != "mine" {
			t.Errorf("%s %s: the caller's id became %q", c.method, c.path, got)
		}
	}
	for _, path := range []string{
		"/v1/reservations:flush", "/v1/jobs/j/stages/s/workers:cancel", "/v1/registry:markReady",
		"/v1/executors:disable", "/v1/executors:enable", "/v1/executors/e:drain", "/v1/executors/e:clearQuarantine",
		"/v1/usage:claimForScaleDown",
	} {
		var first, second, own calls
		ask(t, &first, "POST", path, "{}")
		ask(t, &second, "POST", path, "{}")
		ask(t, &own, "POST", path, `{"requestId":"mine"}`)
		a, b := first.in.(identified).GetRequestId(), second.in.(identified).GetRequestId()
		if a == "" || a == b {
			t.Errorf("%s: ids %q and %q", path, a, b)
		}
		if got := own.in.(identified).GetRequestId(); got != "mine" {
			t.Errorf("%s: the caller's id became %q", path, got)
		}
	}
	// The caller may also set the request ID in the body.
	var c calls
	ask(t, &c, "PUT", "/v1/jobs/j/stages/s/reservation", `{"requestId":"mine"}`)
	if req := c.in.(*berthv1.UpsertReservationRequest); req.GetRequestId() != "" ||
		req.GetReservation().GetRequestId() != "mine" {
		t.Errorf("sent %v", req)
	}
}

func TestTheBodyAndThePathMakeTheRequest(t *testing.T) {
	c := calls{answer: &berthv1.Reservation{Uid: "u1", Epoch: 7, State: berthv1.Reservation_QUEUED}}
	status, body := ask(t, &c, "PUT", "/v1/jobs/j/stages/s/reservations/n",
		`{"count":2,"targetSize":"4","constraints":{"resources":{"memory":"1073741824","cpu":500}},"queueTimeout":"30s","batch":"STRICT"}`)
	r := c.in.(*berthv1.UpsertReservationRequest).GetReservation()
	if r.GetJob() != "j" || r.GetStage() != "s" || r.GetName() != "n" || r.GetCount() != 2 || r.GetTargetSize() != 4 ||
		r.GetConstraints().GetResources()["memory"] != 1<<30 || r.GetQueueTimeout().GetSeconds() != 30 ||
		r.GetBatch() != berthv1.Batch_STRICT {
		t.Errorf("sent %v", r)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	// 64-bit numbers are strings, enums are names, and zeros are included.
	for key, want := range map[string]any{"epoch": "7", "state": "QUEUED", "position": 0.0, "uid": "u1"} {
		if got[key] != want {
			t.Errorf("%s is %v", key, got[key])
		}
	}
}
