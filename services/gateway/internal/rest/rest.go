// Package rest rejects every unknown field, query parameter and enum value of a REST call, and
// answers every error with one of Berth's reasons. It is the REST API of the gateway: it
// turns proto3 JSON over HTTP into the same calls that gRPC callers make.
//
// Every error, including the errors of this package, is a google.rpc.Status in JSON whose
// ErrorInfo has the reason. Package guard reads the bodies and limits their size.
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
	"berth.dev/pkg/access"
)

// Options are the handlers of requests.
type Options struct {
	// Calls sends calls to the services.
	Calls grpc.ClientConnInterface
	// The gateway itself answers Leaders, Explanations, Findings, Tenants and Outputs.
	Leaders      berthv1.LeadersServer
	Explanations berthv1.ExplanationsServer
	Findings     berthv1.FindingsServer
	Tenants      berthv1.TenantsServer
	Outputs      berthv1.OutputsServer
	// Events serves the streams of job events.
	Events http.Handler
	// Ops serves /healthz, /readyz, /leaderz and /metrics.
	Ops http.Handler
	// Names are the host names by which callers may call the gateway. Addresses and
	// localhost are always allowed, and the names for which Serves, if set, returns true:
	// those in the certificate of the gateway.
	Names  []string
	Serves func(host string) bool
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
	calls = traced(o.Traces, noBody(calls))
	mux := http.NewServeMux()
	mux.Handle("/v1/", calls)
	mux.Handle("GET /v1/jobs/{job}/events", events(o))
	for _, path := range operationPaths {
		mux.Handle("GET "+path, o.Ops)
	}
	mux.HandleFunc("GET /openapi.json", document)
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { noRoute(w, r, http.StatusNotFound) })
	return o.Guard.HTTP(sameOrigin(o, asEscaped(calls, mux)), WriteError), nil
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
		runtime.WithMiddlewares(noQuery, agree),
	)
	answered := local{o.Calls, map[string]localMethod{}}
	berthv1.RegisterLeadersServer(answered, o.Leaders)
	berthv1.RegisterExplanationsServer(answered, o.Explanations)
	berthv1.RegisterFindingsServer(answered, o.Findings)
	berthv1.RegisterTenantsServer(answered, o.Tenants)
	berthv1.RegisterOutputsServer(answered, o.Outputs)
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
	} {
		if err != nil {
			return nil, err
		}
	}
	return keepEscaped(mux), nil
}

func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Write(openapi.Document) //nolint:errcheck // it fails only on a closed connection
}

const welcome = `Berth schedules gangs: it reserves executors for all workers of a batch, all or none.

  /v1/jobs                  jobs, with their numbers of reservations and workers
  /v1/reservations          reservations
  /v1/reservations:pending  the queues, and why their heads are pending
  /v1/executors             the inventory
  /v1/assignments           workers on executors
  /v1/volumes               volumes of worker indexes
  /v1/usage                 used and requested executors of each SKU
  /v1/skus, /v1/pools       the catalog
  /v1/tenants               the tenants, with their limits and use
  /v1/leaders               the leader and the replicas of each service
  /v1/findings              problems that an operator should know about
  /v1/jobs/{job}/events     the events of a job, as a stream
  /v1/jobs/{job}/stages/{stage}/reservation:members
                            the members of a gang, and where they run
  /v1/jobs/{job}/stages/{stage}/workers/{index}/output
                            the output of a worker
  /openapi.json             the OpenAPI document
  /healthz /readyz /leaderz /metrics
`

func index(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	io.WriteString(w, welcome) //nolint:errcheck // it fails only on a closed connection
}
