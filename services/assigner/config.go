package assigner

import (
	"errors"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/services/assigner/dispatch"
)

// Config is the configuration of an assigner replica.
type Config struct {
	process.Service       `mapstructure:",squash"`
	AgentRequestsInFlight int `mapstructure:"agent-requests-in-flight" usage:"maximum start and stop requests to agents in flight (1 to 10000)"`
	RequestsPerExecutor   int `mapstructure:"requests-per-executor" usage:"maximum start and stop requests to one executor in flight (1 to 1000)"`
}

// Defaults returns the default configuration of an assigner replica.
func Defaults() Config {
	return Config{
		Service:               process.ServiceDefaults(7103, 7183),
		AgentRequestsInFlight: dispatch.Default.InFlight, RequestsPerExecutor: dispatch.Default.PerExecutor,
	}
}

// Check returns every mistake in the configuration that is visible without any other file.
func (c Config) Check() error {
	_, err := c.dispatch()
	return errors.Join(c.Service.Check(), err)
}

// dispatch returns the configuration of the core. The errors name the options that are out of
// their range.
func (c Config) dispatch() (dispatch.Config, error) {
	config := dispatch.Default
	config.InFlight, config.PerExecutor = c.AgentRequestsInFlight, c.RequestsPerExecutor
	var errs []error
	for _, option := range []struct {
		name        string
		value, most int
	}{
		{"agent-requests-in-flight", c.AgentRequestsInFlight, 10_000},
		{"requests-per-executor", c.RequestsPerExecutor, 1_000},
	} {
		if option.value < 1 || option.value > option.most {
			errs = append(errs, fault.BadField(fault.ReasonInvalid, option.name, "must be between 1 and %d, got %d", option.most,
				option.value))
		}
	}
	return config, errors.Join(errs...)
}
