package registry

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/constraint"
	"berth.dev/pkg/identity"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// Config configures a registry replica.
type Config struct {
	process.Service `mapstructure:",squash"`
	Order           string        `mapstructure:"order" usage:"order of each queue: epoch (priority.order, otherwise first come, first served) or class (REPLACE, SCALE, NEW_JOB, then tier, then epoch)"`
	Readiness       string        `mapstructure:"readiness" usage:"when a new cluster begins to lease: auto (at once) or signal (after markReady)"`
	ReadinessGrace  time.Duration `mapstructure:"readiness-grace" usage:"maximum wait for markReady when readiness is signal, up to 24h; 0s waits forever"`
	Debounce        time.Duration `mapstructure:"debounce" usage:"time to gather changes of the inventory before pending reservations are tried again, 1ms to 10s"`
	RetryEvery      time.Duration `mapstructure:"retry-every" usage:"interval to try pending reservations again without any change, 10ms to 10m"`
	MinDelay        time.Duration `mapstructure:"min-delay" usage:"minimum time between two scheduling cycles, 1ms to 1s"`
	PassThrough     bool          `mapstructure:"pass-through-reservation-scheduling" usage:"schedule batches all or nothing (gang scheduling) if the request does not set batch; false starts the workers that fit"`
	DefaultAttrs    []string      `mapstructure:"default-attributes" usage:"attributes of executors, name=value, for requests that do not name the attribute; set the same for all replicas"`
	MaxQueued       int           `mapstructure:"max-queued" usage:"maximum number of queued reservations of all jobs"`
	MaxQueuedPerJob int           `mapstructure:"max-queued-per-job" usage:"maximum number of queued reservations of one job"`
	MaxStored       int           `mapstructure:"max-stored-bytes" usage:"maximum bytes of the records of all reservations, including those that ended in the last ten minutes; set at most a quarter of etcd's quota"`
	MaxStoredPerJob int           `mapstructure:"max-stored-bytes-per-job" usage:"maximum bytes of the records of one job's reservations, including those that ended in the last ten minutes"`

	// MaxEnded is passed to queue.Config. It is not an option: only `berth dev` bounds ended
	// reservations by number. All other clusters promise to keep them for ten minutes.
	MaxEnded int `mapstructure:"-"`
}

// The values of Readiness.
const (
	readinessAuto   = "auto"
	readinessSignal = "signal"
)

// Defaults returns the default configuration of a registry replica.
func Defaults() Config {
	return Config{
		Service: process.ServiceDefaults(7101, 7181),
		Order:   "epoch", Readiness: readinessAuto,
		Debounce: 50 * time.Millisecond, RetryEvery: time.Second, MinDelay: time.Millisecond,
		PassThrough: true,
		MaxQueued:   1_000_000, MaxQueuedPerJob: 50_000, MaxStored: 2 << 30, MaxStoredPerJob: 512 << 20,
	}
}

// Check returns every mistake in the configuration that is visible without any other file.
func (c Config) Check() error {
	_, err := c.queue()
	return errors.Join(c.Service.Check(), err)
}

// queue returns the configuration of the core. The errors name the options that are out of
// their range.
func (c Config) queue() (queue.Config, error) {
	order, orderErr := scheduler.OrderNamed(c.Order)
	attributes, attributesErr := defaultAttributes(c.DefaultAttrs)
	config := queue.Config{
		Scheduling:     scheduler.Config{Order: order, Debounce: c.Debounce, RetryEvery: c.RetryEvery, MinDelay: c.MinDelay},
		ReadinessGrace: c.ReadinessGrace, BestEffort: !c.PassThrough, DefaultAttributes: attributes,
		MaxEnded:  c.MaxEnded,
		MaxQueued: c.MaxQueued, MaxQueuedPerJob: c.MaxQueuedPerJob, MaxStored: int64(c.MaxStored),
		MaxStoredPerJob: int64(c.MaxStoredPerJob),
	}
	var readinessErr error
	switch {
	case c.Readiness == readinessSignal:
		config.Readiness = queue.ReadyOnSignal
	case c.Readiness != readinessAuto:
		readinessErr = fault.BadField(fault.ReasonInvalid, "readiness", "must be %s or %s, got %q", readinessAuto,
			readinessSignal, c.Readiness)
	case c.ReadinessGrace > 0:
		readinessErr = fault.BadField(fault.ReasonInvalid, "readiness-grace", "must not be set with readiness %s",
			c.Readiness).With(fault.MetaCombination, "true")
	}
	return config, errors.Join(orderErr, attributesErr, readinessErr,
		within("readiness-grace", c.ReadinessGrace, 0, 24*time.Hour),
		within("debounce", c.Debounce, time.Millisecond, 10*time.Second),
		within("retry-every", c.RetryEvery, 10*time.Millisecond, 10*time.Minute),
		within("min-delay", c.MinDelay, time.Millisecond, time.Second),
		within("max-queued", c.MaxQueued, 1, 100_000_000),
		within("max-queued-per-job", c.MaxQueuedPerJob, 1, 100_000_000),
		within("max-stored-bytes", c.MaxStored, 1, 1<<40),
		within("max-stored-bytes-per-job", c.MaxStoredPerJob, 1, 1<<40),
	)
}

// maxDefaultAttributes is the maximum number of default attributes. Each of them uses one of
// the model.MaxAttributes attributes of every request that does not name it.
const maxDefaultAttributes = 16

// defaultAttributes parses the list of default attributes.
func defaultAttributes(list []string) (map[string]string, error) {
	const option = "default-attributes"
	if len(list) > maxDefaultAttributes {
		return nil, fault.BadField(fault.ReasonInvalid, option, "must be at most %d attributes, got %d",
			maxDefaultAttributes, len(list))
	}
	if len(list) == 0 {
		return nil, nil
	}
	attributes, names := map[string]string{}, map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || value == "" || len(value) > maxAttributeValue {
			return nil, fault.BadField(fault.ReasonInvalid, option,
				"must be name=value with a value of 1 to %d bytes, got %.300q", maxAttributeValue, text)
		}
		if !model.ValidName(name, identity.MaxName) {
			return nil, fault.BadField(fault.ReasonBadName, option,
				"must have a name of 1 to %d letters, digits, '.', '_' and '-', got %.300q", identity.MaxName, text)
		}
		if other, twice := names[constraint.Fold(name)]; twice {
			return nil, fault.BadField(fault.ReasonDuplicate, option, "names %q twice, the second time as %q", other, name)
		}
		attributes[name], names[constraint.Fold(name)] = value, name
	}
	return attributes, nil
}

// maxAttributeValue is the maximum length of the value of a default attribute, in bytes.
const maxAttributeValue = 256

func within[T cmp.Ordered](option string, value, least, most T) error {
	if value < least || value > most {
		return fault.BadField(fault.ReasonInvalid, option, "must be between %v and %v, got %v", least, most, value)
	}
	return nil
}
