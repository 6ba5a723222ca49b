package tracing

import (
	"errors"
	"net/url"
	"strconv"
	"strings"

	"berth.dev/api/fault"
	"berth.dev/api/rpc"
)

// Config selects the destination of spans. Embed it in the configuration of a process with the tag
// `mapstructure:",squash"`.
type Config struct {
	OTLPEndpoint string  `mapstructure:"otlp-endpoint" usage:"OTLP/gRPC collector for traces, host:port or URL; empty disables tracing"`
	TraceRatio   float64 `mapstructure:"trace-ratio" usage:"fraction of requests that are traced, 0 to 1; a request that already has a trace keeps its decision"`
}

// Defaults returns a configuration without an endpoint. If an endpoint is set, the
// defaults trace every request.
func Defaults() Config { return Config{TraceRatio: 1} }

// Check returns every mistake in the configuration. insecure permits plain text beyond loopback.
func (c Config) Check(insecure bool) error {
	var errs []error
	if !(c.TraceRatio >= 0 && c.TraceRatio <= 1) { // this refuses NaN too
		errs = append(errs, fault.BadField(fault.ReasonInvalid, "--trace-ratio", "must be between 0 and 1, got %v",
			c.TraceRatio))
	}
	if c.OTLPEndpoint != "" {
		_, err := c.collector(insecure)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// collector is a parsed endpoint.
type collector struct {
	address string // host:port
	plain   bool   // without TLS
}

// collector parses the endpoint. The scheme selects TLS or plain text. Without a scheme,
// the connection uses TLS unless the host is loopback or insecure is set.
func (c Config) collector(insecure bool) (collector, error) {
	scheme, address, given := strings.Cut(c.OTLPEndpoint, "://")
	if !given {
		scheme, address = "", c.OTLPEndpoint
	}
	// A path would be ignored, so it is refused.
	u, err := url.Parse("//" + strings.TrimSuffix(address, "/"))
	if err != nil || u.Host == "" || u.Host != strings.TrimSuffix(address, "/") {
		return collector{}, badEndpoint("must be host:port or a URL, got %q", c.OTLPEndpoint)
	}
	port, err := strconv.Atoi(u.Port())
	if u.Hostname() == "" || err != nil || port < 1 || port > 65535 {
		return collector{}, badEndpoint("must have a host and a port, got %q", c.OTLPEndpoint)
	}
	local := rpc.Loopback(u.Hostname())
	switch scheme {
	case "":
		return collector{u.Host, local || insecure}, nil
	case "https":
		return collector{u.Host, false}, nil
	case "http":
		if !local && !insecure {
			return collector{}, badEndpoint("%q has no TLS and is beyond loopback: use https:// or add --insecure",
				c.OTLPEndpoint).With(fault.MetaCombination, "true")
		}
		return collector{u.Host, true}, nil
	}
	return collector{}, badEndpoint("the scheme must be http or https, got %q", c.OTLPEndpoint)
}

func badEndpoint(format string, args ...any) *fault.Error {
	return fault.BadField(fault.ReasonInvalid, "--otlp-endpoint", format, args...)
}
