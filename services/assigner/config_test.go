package assigner

import (
	"testing"

	"berth.dev/api/fault"
	"berth.dev/services/assigner/dispatch"
)

func TestDefaultsMatchTheCore(t *testing.T) {
	if config, err := Defaults().dispatch(); err != nil || config != dispatch.Default {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestOptionsReachTheCore(t *testing.T) {
	c := Defaults()
	c.AgentRequestsInFlight, c.RequestsPerExecutor = 10_000, 1
	want := dispatch.Default
	want.InFlight, want.PerExecutor = 10_000, 1
	if config, err := c.dispatch(); err != nil || config != want {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestInvalidOptionsAreRejectedByName(t *testing.T) {
	for option, change := range map[string]func(*Config, int){
		"agent-requests-in-flight": func(c *Config, n int) { c.AgentRequestsInFlight = n },
		"requests-per-executor":    func(c *Config, n int) { c.RequestsPerExecutor = n },
	} {
		for _, n := range []int{-1, 0, 10_001} {
			c := Defaults()
			change(&c, n)
			_, err := c.dispatch()
			if f := fault.Of(err); f == nil || len(f.Fields) != 1 || f.Fields[0].Name != option {
				t.Errorf("%s %d: %v", option, n, err)
			}
		}
	}
}
