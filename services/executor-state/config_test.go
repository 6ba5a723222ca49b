package executorstate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"berth.dev/api/fault"
	"berth.dev/services/executor-state/inventory"
)

func TestDefaultsMatchTheInventory(t *testing.T) {
	config, err := Defaults().inventory()
	if err != nil || config != inventory.DefaultConfig() {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestOptionsReachTheInventory(t *testing.T) {
	c := Defaults()
	c.LostRetention = time.Hour
	c.MaxExecutors, c.MaxNewExecutors, c.MaxCatalog = 7, 8, 9
	want := inventory.DefaultConfig()
	want.LostRetention, want.MaxExecutors, want.MaxNewExecutors, want.MaxCatalog = time.Hour, 7, 8, 9
	if config, err := c.inventory(); err != nil || config != want {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestBadOptionsAreRefusedByName(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Second, -time.Hour, 10_000 * time.Hour} {
		c := Defaults()
		c.LostRetention = retention
		_, err := c.inventory()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Fields[0].Name != "lost-retention" ||
			!strings.Contains(f.Message, retention.String()) {
			t.Errorf("%v: %v", retention, err)
		}
	}
}

func TestBadBoundsAreRefusedByName(t *testing.T) {
	for name, of := range map[string]func(*Config) *int{
		"max-executors":     func(c *Config) *int { return &c.MaxExecutors },
		"max-new-executors": func(c *Config) *int { return &c.MaxNewExecutors },
		"max-catalog":       func(c *Config) *int { return &c.MaxCatalog },
	} {
		for _, value := range []int{-1, 0, 1_000_001} {
			c := Defaults()
			*of(&c) = value
			_, err := c.inventory()
			var f *fault.Error
			if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Fields[0].Name != name {
				t.Errorf("%s %d: %v", name, value, err)
			}
		}
	}
}
