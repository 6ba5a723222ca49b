package cluster

import (
	"testing"

	"berth.dev/services/registry"
)

// TestABoundedClusterKeepsLittleHistory checks that a bounded cluster keeps little
// history in etcd and in the registry, and that any other cluster keeps the default
// history.
func TestABoundedClusterKeepsLittleHistory(t *testing.T) {
	for _, bounded := range []bool{true, false} {
		config := Config{Bounded: bounded}
		member := config.member()
		service, err := config.service("etcd:2379", "registry")
		if err != nil {
			t.Fatal(err)
		}
		registryConfig, defaults := config.registry(service), registry.Defaults()
		if got := member.History == history && member.RaftEntries == raftEntries; got != bounded {
			t.Errorf("bounded %v: etcd keeps %q and %d entries of its log", bounded, member.History, member.RaftEntries)
		}
		if got := service.EventMaxBytes == maxEventBytes && registryConfig.EventMaxBytes == maxEventBytes; got != bounded {
			t.Errorf("bounded %v: services keep %d bytes of events", bounded, service.EventMaxBytes)
		}
		if got := registryConfig.MaxEnded == maxEnded; got != bounded {
			t.Errorf("bounded %v: the registry keeps %d ended versions", bounded, registryConfig.MaxEnded)
		}
		if !bounded && (registryConfig.EventMaxBytes != defaults.EventMaxBytes || registryConfig.MaxEnded != 0 ||
			member.History != "") {
			t.Errorf("the same bounds with and without the option: %+v, %+v", registryConfig, member)
		}
	}
}
