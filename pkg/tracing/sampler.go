package tracing

import (
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler follows what a span comes of. Where it comes of nothing, a share of
// the requests is traced.
func sampler(ratio float64) sdk.Sampler {
	return sdk.ParentBased(roots{sdk.TraceIDRatioBased(ratio)})
}

// roots judges spans that come of nothing.
type roots struct{ sdk.Sampler }

// ShouldSample implements sdk.Sampler. What is linked with a trace goes with it;
// what the processes tell one another all the time is none.
func (r roots) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	for _, link := range p.Links {
		if link.SpanContext.IsSampled() {
			return sdk.AlwaysSample().ShouldSample(p)
		}
	}
	if background(p) {
		return sdk.NeverSample().ShouldSample(p)
	}
	return r.Sampler.ShouldSample(p)
}

// background are calls between Berth's processes, health checks, and streams of
// events, which last as long as somebody reads.
func background(p sdk.SamplingParameters) bool {
	if p.Kind != trace.SpanKindServer && p.Kind != trace.SpanKindClient {
		return false
	}
	for _, prefix := range []string{"berth.control.v1.", "grpc.", "berth.v1.Events/"} {
		if strings.HasPrefix(p.Name, prefix) {
			return true
		}
	}
	return false
}
