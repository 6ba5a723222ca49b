package scenario

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"berth.dev/testkit/porttest"
)

// collector is a server that receives traces over OTLP.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []span
}

// span is a span, with the process that has sent it.
type span struct {
	*tracepb.Span
	service, replica string
	attributes       map[string]string
}

func (s span) trace() string { return hex.EncodeToString(s.GetTraceId()) }

func startCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{address: porttest.Hold(t)}
	l, err := net.Listen("tcp", c.address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, c)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-ended; err != nil {
			t.Errorf("collector: %v", err)
		}
	})
	return c
}

// Export implements the service of an OTLP collector.
func (c *collector) Export(_ context.Context,
	req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, process := range req.GetResourceSpans() {
		who := texts(process.GetResource().GetAttributes())
		for _, scope := range process.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, span{s, who["service.name"], who["service.instance.id"], texts(s.GetAttributes())})
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// all returns the spans that were received so far.
func (c *collector) all() []span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans)
}

func texts(attributes []*commonpb.KeyValue) map[string]string {
	m := map[string]string{}
	for _, a := range attributes {
		m[a.GetKey()] = a.GetValue().GetStringValue()
	}
	return m
}
