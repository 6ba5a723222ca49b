// Package rest is the REST face of the gateway: proto3 JSON over HTTP, turned
// into the same calls that gRPC callers make.
//
// It promises that what it does not understand is refused and never ignored:
// unknown fields, unknown query parameters, unknown names of enums and bodies
// that are too large; and that every error, its own included, is a
// google.rpc.Status in JSON whose ErrorInfo has a reason of Berth's list.
package rest

import (
	"context"
	"io"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/openapi"
)

// Options are the parts that requests end at.
type Options struct {
	// Calls takes the calls to the services.
	Calls grpc.ClientConnInterface
	// Leaders, Explanations and Findings are answered by the gateway itself.
	Leaders      berthv1.LeadersServer
	Explanations berthv1.ExplanationsServer
	Findings     berthv1.FindingsServer
	// Events makes the handler of event streams.
	Events http.Handler
	// Ops serves /healthz, /readyz, /leaderz and /metrics.
	Ops http.Handler
	// Names are those that callers know the gateway by, addresses aside.
	Names []string
	// Traces, when given, takes a span of each call.
	Traces trace.Tracer
}

// New makes the handler of everything that is served over HTTP.
func New(o Options) (http.Handler, error) {
	calls, err := methods(o)
	if err != nil {
		return nil, err
	}
	calls = traced(o.Traces, noBody(calls))
	mux := http.NewServeMux()
	mux.Handle("/v1/", calls)
	mux.Handle("GET /v1/jobs/{job}/events", o.Events)
	for _, path := range operationPaths {
		mux.Handle("GET "+path, o.Ops)
	}
	mux.HandleFunc("GET /openapi.json", document)
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { noRoute(w, r, http.StatusNotFound) })
	return sameOrigin(o.Names, asEscaped(calls, mux)), nil
}

// methods serves the rules of api/http.yaml.
func methods(o Options) (http.Handler, error) {
	strictQueries()
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, newJSON()),
		runtime.WithErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
			WriteError(w, err)
		}),
		runtime.WithRoutingErrorHandler(func(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, status int) {
			noRoute(w, r, status)
		}),
		// The headers of the inner call are of no use to an HTTP caller.
		runtime.WithOutgoingHeaderMatcher(func(string) (string, bool) { return "", false }),
		// A method is what it says: no form posts that mean GET or DELETE.
		runtime.WithDisablePathLengthFallback(),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithUnescapingMode(runtime.UnescapingModeAllExceptSlash),
		runtime.WithMiddlewares(noQuery, agree),
	)
	calls := identified{o.Calls}
	ctx := context.Background()
	for _, err := range []error{
		berthv1.RegisterReservationsHandlerClient(ctx, mux, berthv1.NewReservationsClient(calls)),
		berthv1.RegisterExecutorsHandlerClient(ctx, mux, berthv1.NewExecutorsClient(calls)),
		berthv1.RegisterAssignmentsHandlerClient(ctx, mux, berthv1.NewAssignmentsClient(calls)),
		berthv1.RegisterCatalogHandlerClient(ctx, mux, berthv1.NewCatalogClient(calls)),
		berthv1.RegisterUsageHandlerClient(ctx, mux, berthv1.NewUsageClient(calls)),
		berthv1.RegisterLeadersHandlerServer(ctx, mux, o.Leaders),
		berthv1.RegisterExplanationsHandlerServer(ctx, mux, o.Explanations),
		berthv1.RegisterFindingsHandlerServer(ctx, mux, o.Findings),
	} {
		if err != nil {
			return nil, err
		}
	}
	return keepEscaped(mux), nil
}

func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(openapi.Document) //nolint:errcheck // the reader has gone
}

const welcome = `Berth reserves whole batches of executors for the workers of a job, all or none.

  /v1/reservations          what is reserved
  /v1/reservations:pending  what waits, and why
  /v1/executors             the inventory
  /v1/assignments           workers on executors
  /v1/usage                 what is used and what is asked for, per SKU
  /v1/skus, /v1/pools       the catalog
  /v1/leaders               who leads
  /v1/findings              what an operator should know of
  /v1/jobs/{job}/events     what became of each worker, as a stream
  /openapi.json             every call
  /healthz /readyz /leaderz /metrics
`

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, welcome) //nolint:errcheck // the reader has gone
}
