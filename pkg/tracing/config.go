package tracing

import (
	"net"
	"net/url"
	"strconv"
	"strings"

	"berth.dev/api/fault"
)

// Config says where spans go. It is part of a
// process's configuration with the tag `mapstructure:",squash"`.
type Config struct {
	OTLPEndpoint string  `mapstructure:"otlp-endpoint" usage:"collector that takes traces over OTLP/gRPC, host:port or URL; without one nothing is traced"`
	TraceRatio   float64 `mapstructure:"trace-ratio" usage:"share of the requests that are traced, 0 to 1; a request that comes with a trace follows that"`
}

// Defaults trace nothing, and with an endpoint every request.
func Defaults() Config { return Config{TraceRatio: 1} }

// collector is an endpoint that was understood.
type collector struct {
	address string // host:port
	plain   bool   // without TLS
}

// collector reads the endpoint. A scheme says whether there is TLS; without one
// there is, except on loopback, or where insecure says that none is needed.
func (c Config) collector(insecure bool) (collector, error) {
	scheme, address, given := strings.Cut(c.OTLPEndpoint, "://")
	if !given {
		scheme, address = "", c.OTLPEndpoint
	}
	// The rest of a URL would be ignored.
	u, err := url.Parse("//" + strings.TrimSuffix(address, "/"))
	if err != nil || u.Host == "" || u.Host != strings.TrimSuffix(address, "/") {
		return collector{}, badEndpoint("%q is neither host:port nor the URL of one", c.OTLPEndpoint)
	}
	port, err := strconv.Atoi(u.Port())
	if u.Hostname() == "" || err != nil || port < 1 || port > 65535 {
		return collector{}, badEndpoint("%q has no host or no port", c.OTLPEndpoint)
	}
	local := loopback(u.Hostname())
	switch scheme {
	case "":
		return collector{u.Host, local || insecure}, nil
	case "https":
		return collector{u.Host, false}, nil
	case "http":
		if !local && !insecure {
			return collector{}, badEndpoint("%q is beyond loopback and has no TLS, which needs --insecure", c.OTLPEndpoint)
		}
		return collector{u.Host, true}, nil
	}
	return collector{}, badEndpoint("%q begins with neither http:// nor https://", c.OTLPEndpoint)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func badEndpoint(format string, args ...any) error {
	return fault.BadField(fault.ReasonInvalid, "--otlp-endpoint", format, args...)
}
