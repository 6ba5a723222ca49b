package assigner

import (
	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/services/assigner/dispatch"
)

// Config of an assigner replica.
type Config struct {
	process.Service   `mapstructure:",squash"`
	OrdersInFlight    int `mapstructure:"orders-in-flight" usage:"how many orders to agents are under way at most, 1 to 10000"`
	OrdersPerExecutor int `mapstructure:"orders-per-executor" usage:"how many of them to the agent of one executor, 1 to 1000"`
}

// Defaults of an assigner replica.
func Defaults() Config {
	return Config{
		Service:        process.ServiceDefaults(7103, 7183),
		OrdersInFlight: dispatch.Default.InFlight, OrdersPerExecutor: dispatch.Default.PerExecutor,
	}
}

// dispatch is the part of the configuration that the core is made with. A value
// out of its range is refused with the name of its option.
func (c Config) dispatch() (dispatch.Config, error) {
	config := dispatch.Default
	config.InFlight, config.PerExecutor = c.OrdersInFlight, c.OrdersPerExecutor
	for _, option := range []struct {
		name        string
		value, most int
	}{{"orders-in-flight", c.OrdersInFlight, 10_000}, {"orders-per-executor", c.OrdersPerExecutor, 1_000}} {
		if option.value < 1 || option.value > option.most {
			return config, fault.BadField(fault.ReasonInvalid, option.name, "%d is not within 1 and %d", option.value, option.most)
		}
	}
	return config, nil
}
