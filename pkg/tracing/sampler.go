package tracing

import (
	"strings"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// sampler returns a sampler that uses the decision of a span's parent. Without a parent,
// it samples a fraction of the requests.
func sampler(ratio float64) sdk.Sampler {
	return sdk.ParentBased(roots{sdk.TraceIDRatioBased(ratio)})
}

// roots decides about spans without a parent.
type roots struct{ sdk.Sampler }

// ShouldSample implements sdk.Sampler. It samples a span with a link to a sampled trace.
// It does not sample background calls.
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

// background reports whether a span is a call between Berth's processes, a health check,
// or a stream of events. A stream of events lasts as long as its reader.
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
