// Package rest rejects every unknown field, query parameter and enum value of a REST call, and
// answers every error with one of Berth's reasons. It is the REST API of the gateway: it
// turns proto3 JSON over HTTP into the same calls that gRPC callers make.
//
// Every error, including the errors of this package, is a google.rpc.Status in JSON whose
// ErrorInfo has the reason. Package guard reads the bodies and limits their size.
package rest

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/openapi"
	"berth.dev/pkg/access"
	"berth.dev/services/gateway/internal/console"
)

// Options are the handlers of requests.
type Options struct {
	// Calls sends calls to the services.
	Calls grpc.ClientConnInterface
	// The gateway itself answers Leaders, Explanations, Findings, Tenants, Outputs, Callers and
	// AuditLog.
	Leaders      berthv1.LeadersServer
	Explanations berthv1.ExplanationsServer
	Findings     berthv1.FindingsServer
	Tenants      berthv1.TenantsServer
	Outputs      berthv1.OutputsServer
	Callers      berthv1.CallersServer
	AuditLog     berthv1.AuditLogServer
	// Events serves the streams of job events.
	Events http.Handler
	// Watch returns the handler of GET /v1/watch, which makes calls.
	Watch func(Calls) http.Handler
	// Ops serves /healthz, /readyz, /leaderz and /metrics.
	Ops http.Handler
	// Names are the host names by which callers may call the gateway. Addresses and
	// localhost are always allowed, and the names for which Serves, if set, returns true:
	// those in the certificate of the gateway.
	Names  []string
	Serves func(host string) bool
	// Base, if set, is a path such as /berth that may precede all paths: a proxy may remove it or
	// keep it. The console and the OpenAPI document call the gateway with it.
	Base string
	// Traces, if not nil, receives a span of each call.
	Traces trace.Tracer
	// Guard admits the requests.
	Guard *access.Guard
}

// New returns the HTTP handler of the gateway.
func New(o Options) (http.Handler, error) {
	calls, err := methods(o)
	if err != nil {
		return nil, err
	}
	// A watch repeats its calls, so they have no spans of requests.
	watch := o.Watch(Calls{asEscaped(calls, calls)})
	calls = traced(o.Traces, noBody(calls))
	mux := http.NewServeMux()
	mux.Handle("/v1/", calls)
	mux.Handle("GET /v1/watch", watch)
	mux.Handle("GET /v1/jobs/{job}/events", events(o))
	for _, path := range operationPaths {
		mux.Handle("GET "+path, o.Ops)
	}
	mux.Handle("/session", traced(o.Traces, sessions(o)))
	mux.HandleFunc("GET /openapi.json", document(o.Base))
	page := console.Page(o.Base)
	mux.HandleFunc("GET /{$}", index(page))
	for _, view := range console.Views {
		mux.HandleFunc("GET /"+view, page)
		mux.HandleFunc("GET /"+view+"/", page)
	}
	mux.HandleFunc("GET /assets/", func(w http.ResponseWriter, r *http.Request) {
		if !console.Asset(w, r) {
			noRoute(w, r, http.StatusNotFound)
		}
	})
	mux.HandleFunc("/", unknown(page))
	return atBase(o.Base, o.Guard.HTTP(sameOrigin(o, asEscaped(calls, mux)), WriteError)), nil
}

// atBase removes the base path from a request that has it.
func atBase(base string, next http.Handler) http.Handler {
	if base == "" {
		return next
	}
	below := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == base:
			root, location := *r, *r.URL
			location.Path, location.RawPath = "/", ""
			root.URL = &location
			next.ServeHTTP(w, &root)
		case strings.HasPrefix(r.URL.EscapedPath(), base+"/"): // as the caller sent it, like asEscaped
			below.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// events returns the handler of a stream of job events.
func events(o Options) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := &berthv1.WatchEventsRequest{Job: r.PathValue("job")}
		if err := o.Guard.Check(r.Context(), berthv1.Events_WatchEvents_FullMethodName, request, func() error {
			o.Events.ServeHTTP(w, r)
			return nil
		}); err != nil {
			WriteError(w, err)
		}
	})
}

// methods returns the handler of the calls that api/http.yaml defines.
func methods(o Options) (http.Handler, error) {
	strictQueries()
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newJSON()),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter,
			_ *http.Request, err error) {
			WriteError(w, err)
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler,
			w http.ResponseWriter, r *http.Request, status int) {
			noRoute(w, r, status)
		}),
		// HTTP callers do not need the headers of the inner call.
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		// Without these options, grpc-gateway would treat a POST of a form as a GET, or as
		// the method in a header.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithMiddlewares(onlyPattern, noQuery, agree),
	)
	answered := local{o.Calls, map[string]localMethod{}}
	berthv1.RegisterLeadersServer(answered, o.Leaders)
	berthv1.RegisterExplanationsServer(answered, o.Explanations)
	berthv1.RegisterFindingsServer(answered, o.Findings)
	berthv1.RegisterTenantsServer(answered, o.Tenants)
	berthv1.RegisterOutputsServer(answered, o.Outputs)
	berthv1.RegisterCallersServer(answered, o.Callers)
	berthv1.RegisterAuditLogServer(answered, o.AuditLog)
	calls := identified{guarded{answered, o.Guard}}
	ctx := context.Background()
	for _, err := range []error{
		berthv1.RegisterReservationsHandlerClient(ctx, mux, berthv1.NewReservationsClient(calls)),
		berthv1.RegisterExecutorsHandlerClient(ctx, mux, berthv1.NewExecutorsClient(calls)),
		berthv1.RegisterAssignmentsHandlerClient(ctx, mux, berthv1.NewAssignmentsClient(calls)),
		berthv1.RegisterCatalogHandlerClient(ctx, mux, berthv1.NewCatalogClient(calls)),
		berthv1.RegisterVolumesHandlerClient(ctx, mux, berthv1.NewVolumesClient(calls)),
		berthv1.RegisterUsageHandlerClient(ctx, mux, berthv1.NewUsageClient(calls)),
		berthv1.RegisterLeadersHandlerClient(ctx, mux, berthv1.NewLeadersClient(calls)),
		berthv1.RegisterExplanationsHandlerClient(ctx, mux, berthv1.NewExplanationsClient(calls)),
		berthv1.RegisterFindingsHandlerClient(ctx, mux, berthv1.NewFindingsClient(calls)),
		berthv1.RegisterTenantsHandlerClient(ctx, mux, berthv1.NewTenantsClient(calls)),
		berthv1.RegisterOutputsHandlerClient(ctx, mux, berthv1.NewOutputsClient(calls)),
		berthv1.RegisterCallersHandlerClient(ctx, mux, berthv1.NewCallersClient(calls)),
		berthv1.RegisterAuditLogHandlerClient(ctx, mux, berthv1.NewAuditLogClient(calls)),
	} {
		if err != nil {
			return nil, err
		}
	}
	return keepEscaped(mux), nil
}

// document returns the handler of the OpenAPI document, which names the base path.
func document(base string) http.HandlerFunc {
	text := openapi.Document
	if base != "" {
		text = bytes.Replace(text, []byte(`"url": "/"`), []byte(`"url": "`+base+`"`), 1)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Write(text) //nolint:errcheck // it fails only on a closed connection
	}
}

const welcome = `Berth schedules gangs: it reserves executors for all workers of a batch, all or none.
Browsers get the console here.

  /v1/jobs                  jobs, with their numbers of reservations and workers
  /v1/reservations          reservations
  /v1/reservations:pending  the queues, and why their heads are pending
  /v1/reservations:pendingHistory
                            how much was pending in the last hour
  /v1/executors             the inventory
  /v1/assignments           workers on executors
  /v1/volumes               volumes of worker indexes
  /v1/usage                 used and requested executors of each SKU
  /v1/skus, /v1/pools       the catalog
  /v1/tenants               the tenants, with their limits and use
  /v1/leaders               the leader and the replicas of each service
  /v1/findings              problems that an operator should know about
  /v1/audit                 the newest entries of the gateway's audit log
  /v1/caller                who you are, and what you may call
  /v1/jobs/{job}/events     the events of a job, as a stream
  /v1/watch?path=           the answers of other paths whenever they change, as a stream
  /v1/jobs/{job}/stages/{stage}/reservation:members
                            the members of a gang, and where they run
  /v1/jobs/{job}/stages/{stage}/workers/{index}/output
                            the output of a worker
  /openapi.json             the OpenAPI document
  /healthz /readyz /leaderz /metrics
`

// unknown answers a browser with the page of the console, which says that it has no such view, and
// every other caller with an error.
func unknown(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") {
			page(notFound{w}, r)
			return
		}
		noRoute(w, r, http.StatusNotFound)
	}
}

// notFound writes its body with the status 404.
type notFound struct{ http.ResponseWriter }

func (w notFound) Write(body []byte) (int, error) {
	w.WriteHeader(http.StatusNotFound)
	return w.ResponseWriter.Write(body)
}

// index answers a browser with the page of the console, and every other caller with a list of
// paths.
func index(page http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if strings.Contains(r.Header.Get("Accept"), "text/html") {
			page(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(w, welcome) //nolint:errcheck // it fails only on a closed connection
	}
}
