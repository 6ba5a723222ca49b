package executorstate

import (
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/pkg/process"
	"berth.dev/services/executor-state/inventory"
)

// Config of an executor-state replica.
type Config struct {
	process.Service `mapstructure:",squash"`
	LostRetention   time.Duration `mapstructure:"lost-retention" usage:"how long the record of an executor that is LOST is kept once no lease or task names it, 1m to 8760h"`
}

// Defaults of an executor-state replica.
func Defaults() Config {
	return Config{
		Service:       process.ServiceDefaults(7102, 7182),
		LostRetention: inventory.DefaultConfig().LostRetention,
	}
}

// The range of LostRetention, up to a year.
const (
	leastRetention = time.Minute
	mostRetention  = 8760 * time.Hour
)

// inventory is the part of the configuration that the core is made with. A value
// out of its range is refused with the name of its option.
func (c Config) inventory() (inventory.Config, error) {
	config := inventory.DefaultConfig()
	if c.LostRetention < leastRetention || c.LostRetention > mostRetention {
		return config, fault.BadField(fault.ReasonInvalid, "lost-retention", "%v is not within %v and %v", c.LostRetention, leastRetention, mostRetention)
	}
	config.LostRetention = c.LostRetention
	return config, nil
}
