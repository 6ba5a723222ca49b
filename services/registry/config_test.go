package registry

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/services/registry/queue"
	"berth.dev/services/registry/scheduler"
)

func TestDefaultsMatchTheQueue(t *testing.T) {
	config, err := Defaults().queue()
	if err != nil {
		t.Fatal(err)
	}
	if want := (queue.Config{
		Scheduling: scheduler.Config{Order: scheduler.OrderByEpoch{}, Debounce: 50 * time.Millisecond,
			RetryEvery: time.Second, MinDelay: time.Millisecond},
		MaxQueued: 1_000_000, MaxQueuedPerJob: 50_000, MaxStored: 2 << 30, MaxStoredPerJob: 512 << 20,
	}); !reflect.DeepEqual(config, want) {
		t.Errorf("%+v", config)
	}
}

func TestOptionsReachTheQueue(t *testing.T) {
	c := Defaults()
	c.Order, c.Readiness, c.ReadinessGrace, c.PassThrough = "class", "signal", time.Minute, false
	c.Debounce, c.RetryEvery, c.MinDelay = time.Millisecond, 10*time.Minute, time.Second
	c.MaxQueued, c.MaxQueuedPerJob, c.MaxStored, c.MaxStoredPerJob = 4, 3, 2, 1
	c.DefaultAttrs = []string{"zone=a", "arch=amd64=v2"}
	config, err := c.queue()
	if err != nil {
		t.Fatal(err)
	}
	if want := (queue.Config{
		MaxQueued: 4, MaxQueuedPerJob: 3, MaxStored: 2, MaxStoredPerJob: 1,
		Readiness: queue.ReadyOnSignal, ReadinessGrace: time.Minute, BestEffort: true,
		Scheduling: scheduler.Config{Order: scheduler.OrderByClass{}, Debounce: time.Millisecond,
			RetryEvery: 10 * time.Minute, MinDelay: time.Second},
		DefaultAttributes: map[string]string{"zone": "a", "arch": "amd64=v2"},
	}); !reflect.DeepEqual(config, want) {
		t.Errorf("%+v", config)
	}
}

func TestBadOptionsAreRefusedByName(t *testing.T) {
	for _, test := range []struct {
		field, says string
		set         func(*Config)
	}{
		{"order", `must be one of class, epoch, got "fifo"`, func(c *Config) { c.Order = "fifo" }},
		{"order", "class, epoch", func(c *Config) { c.Order = "" }},
		{"readiness", "auto", func(c *Config) { c.Readiness = "later" }},
		{"readiness-grace", "24h", func(c *Config) { c.Readiness, c.ReadinessGrace = "signal", -1 }},
		{"readiness-grace", "must not be set", func(c *Config) { c.ReadinessGrace = time.Second }},
		{"debounce", "0s", func(c *Config) { c.Debounce = 0 }},
		{"debounce", "11s", func(c *Config) { c.Debounce = 11 * time.Second }},
		{"retry-every", "1ms", func(c *Config) { c.RetryEvery = time.Millisecond }},
		{"max-queued", "got 0", func(c *Config) { c.MaxQueued = 0 }},
		{"max-queued-per-job", "got -1", func(c *Config) { c.MaxQueuedPerJob = -1 }},
		{"max-stored-bytes", "1099511627776", func(c *Config) { c.MaxStored = 1<<40 + 1 }},
		{"max-stored-bytes-per-job", "got 0", func(c *Config) { c.MaxStoredPerJob = 0 }},
		{"default-attributes", `name=value with a value of 1 to 256 bytes, got "zone"`, func(c *Config) {
			c.DefaultAttrs = []string{"zone"}
		}},
		{"default-attributes", `got "zone="`, func(c *Config) { c.DefaultAttrs = []string{"zone="} }},
		{"default-attributes", `got "-z=a"`, func(c *Config) { c.DefaultAttrs = []string{"-z=a"} }},
		{"default-attributes", `names "zone" twice, the second time as "ZONE"`, func(c *Config) {
			c.DefaultAttrs = []string{"zone=a", "ZONE=b"}
		}},
		{"default-attributes", "at most 16 attributes, got 17", func(c *Config) { c.DefaultAttrs = make([]string, 17) }},
		{"min-delay", "2s", func(c *Config) { c.MinDelay = 2 * time.Second }},
	} {
		c := Defaults()
		test.set(&c)
		_, err := c.queue()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || len(f.Fields) != 1 || f.Fields[0].Name != test.field ||
			!strings.Contains(f.Message, test.says) {
			t.Errorf("%s: %v", test.field, err)
		}
	}
}
