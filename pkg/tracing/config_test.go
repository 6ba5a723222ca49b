package tracing

import (
	"log/slog"
	"math"
	"testing"

	"berth.dev/api/fault"
)

func TestEndpoints(t *testing.T) {
	for text, want := range map[string]collector{
		"127.0.0.1:4317":           {"127.0.0.1:4317", true},
		"localhost:4317":           {"localhost:4317", true},
		"[::1]:4317":               {"[::1]:4317", true},
		"http://127.0.0.1:4317/":   {"127.0.0.1:4317", true},
		"https://127.0.0.1:4317":   {"127.0.0.1:4317", false},
		"collector.mesh:4317":      {"collector.mesh:4317", false},
		"https://collector.x:4317": {"collector.x:4317", false},
	} {
		got, err := Config{OTLPEndpoint: text}.collector(false)
		if err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"collector.mesh:4317", "http://collector.mesh:4317"} {
		if got, err := (Config{OTLPEndpoint: text}).collector(true); err != nil || !got.plain {
			t.Errorf("%s, insecure: %+v %v", text, got, err)
		}
	}
}

// If an option is invalid, the error names the option.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		field    string
		endpoint string
		ratio    float64
	}{
		{"--otlp-endpoint", "collector", 1},
		{"--otlp-endpoint", ":4317", 1},
		{"--otlp-endpoint", "collector:", 1},
		{"--otlp-endpoint", "collector:grpc", 1},
		{"--otlp-endpoint", "collector:70000", 1},
		{"--otlp-endpoint", "udp://127.0.0.1:4317", 1},
		{"--otlp-endpoint", "http://127.0.0.1:4318/v1/traces", 1},
		{"--otlp-endpoint", "http://user@127.0.0.1:4317", 1},
		{"--otlp-endpoint", "http://collector.mesh:4317", 1}, // needs --insecure
		{"--trace-ratio", "", -0.1},
		{"--trace-ratio", "", 1.1},
		{"--trace-ratio", "", math.NaN()},
	} {
		traces, err := Open(t.Context(), Options{Config: Config{c.endpoint, c.ratio}, Log: slog.New(slog.DiscardHandler)})
		f := fault.Of(err)
		if err == nil || traces != nil || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != c.field {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
