package registry

import (
	"cmp"
	"time"

	"berth.dev/api/fault"
	"berth.dev/pkg/process"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

// Config of a registry replica.
type Config struct {
	process.Service `mapstructure:",squash"`
	Order           string        `mapstructure:"order" usage:"what orders each queue: epoch (priority.order, else first come, first served) or class (REPLACE, SCALE, NEW_JOB, then tier, then epoch)"`
	Readiness       string        `mapstructure:"readiness" usage:"when a new cluster begins to lease: auto (at once) or signal (when markReady was called)"`
	ReadinessGrace  time.Duration `mapstructure:"readiness-grace" usage:"with readiness signal, how long to wait for the call at most, up to 24h; 0s waits for the call alone"`
	Debounce        time.Duration `mapstructure:"debounce" usage:"how long changes of the inventory are gathered before what did not fit is tried again, 1ms to 10s"`
	RetryEvery      time.Duration `mapstructure:"retry-every" usage:"how often what did not fit is tried again without any change, 10ms to 10m"`
	MinDelay        time.Duration `mapstructure:"min-delay" usage:"least time between two tries, 1ms to 1s"`
	PassThrough     bool          `mapstructure:"pass-through-reservation-scheduling" usage:"batches of requests that do not say are strict; false is the legacy mode, in which what fits starts"`
	MaxQueued       int           `mapstructure:"max-queued" usage:"most reservations that may be queued, of all jobs"`
	MaxQueuedPerJob int           `mapstructure:"max-queued-per-job" usage:"most reservations that may be queued of one job"`
	MaxStored       int           `mapstructure:"max-stored" usage:"most bytes that the records of all reservations may take, those that ended in the last ten minutes included; at most a quarter of etcd's quota leaves enough of it free"`
	MaxStoredPerJob int           `mapstructure:"max-stored-per-job" usage:"most bytes that the records of one job's reservations may take, those that ended in the last ten minutes included"`

	// MaxEnded is queue.Config's. It is no option: only berth dev bounds what is
	// kept by count, because ten minutes are promised to everybody else.
	MaxEnded int `mapstructure:"-"`
}

// The names of what makes the registry ready.
const (
	readinessAuto   = "auto"
	readinessSignal = "signal"
)

// Defaults of a registry replica.
func Defaults() Config {
	return Config{
		Service: process.ServiceDefaults(7101, 7181),
		Order:   "epoch", Readiness: readinessAuto,
		Debounce: 50 * time.Millisecond, RetryEvery: time.Second, MinDelay: time.Millisecond,
		PassThrough: true,
		MaxQueued:   1_000_000, MaxQueuedPerJob: 50_000, MaxStored: 2 << 30, MaxStoredPerJob: 512 << 20,
	}
}

// queue is the part of the configuration that the core is made with. A value
// out of its range is refused with the name of its option.
func (c Config) queue() (queue.Config, error) {
	order, err := scheduler.OrderNamed(c.Order)
	if err != nil {
		return queue.Config{}, err
	}
	config := queue.Config{
		Scheduling:     scheduler.Config{Order: order, Debounce: c.Debounce, RetryEvery: c.RetryEvery, MinDelay: c.MinDelay},
		ReadinessGrace: c.ReadinessGrace, BestEffort: !c.PassThrough,
		MaxEnded:  c.MaxEnded,
		MaxQueued: c.MaxQueued, MaxQueuedPerJob: c.MaxQueuedPerJob, MaxStored: int64(c.MaxStored), MaxStoredPerJob: int64(c.MaxStoredPerJob),
	}
	switch c.Readiness {
	case readinessAuto:
	case readinessSignal:
		config.Readiness = queue.ReadyOnSignal
	default:
		return config, fault.BadField(fault.ReasonInvalid, "readiness", "%q is neither %s nor %s", c.Readiness, readinessAuto, readinessSignal)
	}
	if err := cmp.Or(
		within("readiness-grace", c.ReadinessGrace, 0, 24*time.Hour),
		within("debounce", c.Debounce, time.Millisecond, 10*time.Second),
		within("retry-every", c.RetryEvery, 10*time.Millisecond, 10*time.Minute),
		within("min-delay", c.MinDelay, time.Millisecond, time.Second),
		within("max-queued", c.MaxQueued, 1, 100_000_000),
		within("max-queued-per-job", c.MaxQueuedPerJob, 1, 100_000_000),
		within("max-stored", c.MaxStored, 1, 1<<40),
		within("max-stored-per-job", c.MaxStoredPerJob, 1, 1<<40),
	); err != nil {
		return config, err
	}
	if c.ReadinessGrace > 0 && c.Readiness != readinessSignal {
		return config, fault.BadField(fault.ReasonInvalid, "readiness-grace", "is given with readiness %s, which waits for nothing", c.Readiness)
	}
	return config, nil
}

func within[T cmp.Ordered](option string, value, least, most T) error {
	if value < least || value > most {
		return fault.BadField(fault.ReasonInvalid, option, "must be between %v and %v, got %v", least, most, value)
	}
	return nil
}
