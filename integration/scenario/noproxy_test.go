package scenario

import (
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/testkit/porttest"
)

// Processes reach each other, and etcd, without the proxy of the environment. Clients use no proxy
// for localhost and addresses of loopback, so each process reaches the others at a name that is spelled
// otherwise.
func TestProcessesUseNoProxy(t *testing.T) {
	nobody := "http://" + porttest.Hold(t)
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy"} {
		t.Setenv(name, nobody)
	}
	t.Setenv("NO_PROXY", "")
	w := start(t, fleet.Config{
		Via: func(_, _, address string) (string, error) {
			return strings.Replace(address, "127.0.0.1", "LocalHost", 1), nil
		},
		Flags: map[string][]string{"": {"--insecure"}, "agent": {"--insecure"}},
	})
	w.startAgents(fleet.Agent{ID: "host", SKU: "host", Slots: 2})
	w.startSim("sim", 2, 2)
	w.awaitReady(3)
	gang := shell("proxied", "gang", 2, "sleep 1000")
	gang.Constraints = &berthv1.Constraints{Sku: "host"}
	w.upsert(gang)
	w.awaitRunning(gang, 2) // the assigner has reached the agent
	for _, service := range fleet.Services {
		leader, term := w.leader(service)
		leader.Kill()
		w.nextLeader(service, leader, term)
		w.restart(leader)
	}
	w.cancel(gang)
	w.quiesce()
}
