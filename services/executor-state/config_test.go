package executorstate

import (
	"errors"
	"strings"
	"testing"
	"time"

	"berth.dev/pkg/fault"
	"berth.dev/services/executor-state/inventory"
)

func TestDefaultsAreThoseOfTheInventory(t *testing.T) {
	config, err := Defaults().inventory()
	if err != nil || config != inventory.DefaultConfig() {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestOptionsReachTheInventory(t *testing.T) {
	c := Defaults()
	c.LostRetention = time.Hour
	if config, err := c.inventory(); err != nil || config.LostRetention != time.Hour {
		t.Errorf("%+v, %v", config, err)
	}
}

func TestBadOptionsAreRefusedByName(t *testing.T) {
	for _, retention := range []time.Duration{0, time.Second, -time.Hour, 10_000 * time.Hour} {
		c := Defaults()
		c.LostRetention = retention
		_, err := c.inventory()
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Fields[0].Name != "lost-retention" || !strings.Contains(f.Message, retention.String()) {
			t.Errorf("%v: %v", retention, err)
		}
	}
}
