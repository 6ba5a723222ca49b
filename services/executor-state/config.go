package executorstate

import (
	"errors"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/services/executor-state/inventory"
)

// Config is the configuration of an executor-state replica.
type Config struct {
	process.Service `mapstructure:",squash"`
	LostRetention   time.Duration `mapstructure:"lost-retention" usage:"how long to keep the record of a LOST executor that no lease or task names, 1m to 8760h"`
	MaxExecutors    int           `mapstructure:"max-executors" usage:"maximum number of executors, including LOST ones until their records are deleted, 1 to 1000000; a known executor may always register again"`
	MaxNewExecutors int           `mapstructure:"max-new-executors" usage:"maximum number of executors with a new ID that may register within a minute, 1 to 1000000"`
	MaxCatalog      int           `mapstructure:"max-catalog" usage:"maximum number of SKUs, and of pools, 1 to 100000"`
}

// Defaults returns the default configuration.
func Defaults() Config {
	core := inventory.DefaultConfig()
	return Config{
		Service:         process.ServiceDefaults(7102, 7182),
		LostRetention:   core.LostRetention,
		MaxExecutors:    core.MaxExecutors,
		MaxNewExecutors: core.MaxNewExecutors,
		MaxCatalog:      core.MaxCatalog,
	}
}

// The range of LostRetention; the maximum is a year.
const (
	leastRetention = time.Minute
	mostRetention  = 8760 * time.Hour
)

// Check returns every mistake in the configuration that is visible without any other file.
func (c Config) Check() error {
	_, err := c.inventory()
	return errors.Join(c.Service.Check(), err)
}

// inventory returns the configuration of the core. The errors name the options that are out of
// their range.
func (c Config) inventory() (inventory.Config, error) {
	config := inventory.DefaultConfig()
	config.LostRetention = c.LostRetention
	config.MaxExecutors, config.MaxNewExecutors, config.MaxCatalog = c.MaxExecutors, c.MaxNewExecutors, c.MaxCatalog
	var errs []error
	if c.LostRetention < leastRetention || c.LostRetention > mostRetention {
		errs = append(errs, fault.BadField(fault.ReasonInvalid, "lost-retention", "must be between %v and %v, got %v",
			leastRetention, mostRetention, c.LostRetention))
	}
	for _, bound := range []struct {
		name        string
		value, most int
	}{
		{"max-executors", c.MaxExecutors, 1_000_000},
		{"max-new-executors", c.MaxNewExecutors, 1_000_000},
		{"max-catalog", c.MaxCatalog, 100_000},
	} {
		if bound.value < 1 || bound.value > bound.most {
			errs = append(errs, fault.BadField(fault.ReasonInvalid, bound.name, "must be between 1 and %d, got %d", bound.most,
				bound.value))
		}
	}
	return config, errors.Join(errs...)
}
