package scenario

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/api/rpc"
	"berth.dev/client"
	"berth.dev/cmd/berth/fleet"
	"berth.dev/pkg/model"
	"berth.dev/pkg/process/child"
	"berth.dev/testkit/porttest"
)

// A gateway with a wrong address is not ready. /readyz, the log, a finding and berth doctor name what
// it lacks. No command says that there is nothing where the gateway cannot know it.
func TestAGatewayNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	if _, err := w.client.Reserve(w.ctx, &berthv1.Reservation{Job: "train", Stage: "gpu", Count: 1}); err != nil {
		t.Fatal(err)
	}
	nobody, other := porttest.Hold(t), porttest.Hold(t)
	startEtcd(t, other, t.TempDir())
	noEtcd := "etcd does not answer: " + nobody + " (connection refused)"
	noRegistry := "no replica of registry answers: " + nobody + " (connection refused)"
	const otherEtcd, otherCluster = "this gateway reads the etcd cluster ", `this gateway is of the cluster "other"`
	for _, c := range []struct {
		name, option, value string
		reason              string
		// fails has commands that fail with exit code 4 and the reason.
		fails []string
	}{
		{"a wrong etcd", "--etcd-endpoints", nobody, noEtcd, []string{"events train", "events train -f", "logs train/gpu/0"}},
		{"a wrong registry", "--registry", nobody, noRegistry, []string{"get reservations", "get train/gpu"}},
		{"the etcd of another cluster", "--etcd-endpoints", other, otherEtcd, []string{"events train", "logs train/gpu/0"}},
		{"another cluster", "--cluster", "other", otherCluster, []string{"events train"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			options := map[string]string{"--etcd-endpoints": strings.Join(w.fleet.Etcd(), ",")}
			for _, service := range model.Services {
				options["--"+service] = w.fleet.Replica(service, 0).Addresses().Listen + "," +
					w.fleet.Replica(service, 1).Addresses().Listen
			}
			options[c.option] = c.value
			args := []string{"gateway", "--agents-listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0"}
			for option, value := range options {
				args = append(args, option, value)
			}
			p := child.New(strings.ReplaceAll(c.name, " ", "-"), w.binary, w.dir, nil, args...)
			if err := p.Start(w.ctx, "--listen", "--http-listen"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Kill)
			gateway := p.Addresses().Listen

			inJSON := strings.ReplaceAll(c.reason, `"`, `\"`)
			newWeb(t, p.Addresses().HTTP).expect("/readyz", http.StatusServiceUnavailable, `"ready":false`, inJSON)
			newWeb(t, gateway).expect("/readyz", http.StatusServiceUnavailable, `"ready":false`, inJSON)
			awaitLog(t, p, "level=WARN", `msg="not ready"`, inJSON)
			front, err := client.Dial([]string{gateway})
			if err != nil {
				t.Fatal(err)
			}
			defer front.Close()
			until(t, func() string {
				found, err := front.Findings(w.ctx)
				if err == nil && slices.ContainsFunc(found.GetFindings(), func(f *berthv1.Finding) bool {
					return f.GetKind() == "GATEWAY_NOT_READY" && strings.HasPrefix(f.GetMessage(), c.reason)
				}) {
					return ""
				}
				return fmt.Sprintf("findings: %v, %v", found, err)
			})
			exit, said := berth(t, w.ctx, w.binary, nil, "doctor", "--gateway", gateway)
			if exit != rpc.ExitFailed || !strings.Contains(said, gateway+" is not ready: "+c.reason) {
				t.Errorf("doctor: exit %d: %s", exit, said)
			}
			for _, command := range c.fails {
				exit, said := berth(t, w.ctx, w.binary, nil,
					append(strings.Fields(command), "--gateway", gateway, "--timeout", "5s")...)
				if exit != rpc.ExitUnavailable || !strings.Contains(said, c.reason) || strings.Contains(said, "No ") {
					t.Errorf("berth %s: exit %d: %s", command, exit, said)
				}
			}
			if strings.Contains(tail(p.LogFile(), 10_000), "msg=ready") {
				t.Errorf("the gateway was ready: %s", tail(p.LogFile(), 10_000))
			}
		})
	}

	// The gateway of the fleet has everything.
	newWeb(t, w.fleet.Gateway()).expect("/readyz", http.StatusOK, `"ready":true`)
	exit, said := berth(t, w.ctx, w.binary, nil, "events", "train", "--gateway", w.fleet.Gateway())
	if exit != rpc.ExitDone || !strings.Contains(said, "RESERVATION_QUEUED") {
		t.Errorf("events: exit %d: %s", exit, said)
	}
}

// A replica of a service with a wrong address says in its log what it lacks, and in /readyz if it cannot lead
// without that. The gateways report it as a finding, and berth doctor names it.
func TestAServiceNamesWhatItLacks(t *testing.T) {
	t.Parallel()
	w := start(t, fleet.Config{})
	nobody, other, silent := porttest.Hold(t), porttest.Hold(t), porttest.Silent(t)
	startEtcd(t, other, t.TempDir())
	for _, c := range []struct {
		name, option, value string
		// unready is the reason in /readyz, if the replica is not ready, and reason that in the other places.
		unready, reason, finding string
	}{
		{"no-etcd", "--etcd-endpoints", nobody, "the view of etcd is not current: ",
			"etcd does not answer: " + nobody + " (connection refused)", "REPLICA_CUT_OFF"},
		{"silent-etcd", "--etcd-endpoints", silent, "the view of etcd is not current: ",
			"etcd does not answer: " + silent, "REPLICA_CUT_OFF"},
		{"other-etcd", "--etcd-endpoints", other, "", "uses another etcd than other replicas of ", "OTHER_ETCD"},
		{"no-gateway", "--gateways", nobody, "", "no gateway answers: " + nobody + " (connection refused)",
			"REPLICA_CUT_OFF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			internal := w.fleet.GatewayProcess(0).Addresses().Internal
			gateway := []string{"gateway", "--agents-listen", "127.0.0.1:0", "--internal-listen", "127.0.0.1:0",
				"--etcd-endpoints", strings.Join(w.fleet.Etcd(), ",")}
			replicas := map[string]*child.Process{}
			for _, service := range model.Services {
				id := service + "-" + c.name
				options := map[string]string{"--etcd-endpoints": strings.Join(w.fleet.Etcd(), ","), "--gateways": internal}
				options[c.option] = c.value
				p := child.New(id, w.binary, w.dir, nil, service, "--replica", id,
					"--etcd-endpoints", options["--etcd-endpoints"], "--gateways", options["--gateways"])
				if err := p.Start(w.ctx, "--listen", "--http-listen"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(p.Kill)
				replicas[id] = p
				gateway = append(gateway, "--"+service, strings.Join([]string{w.fleet.Replica(service, 0).Addresses().Listen,
					w.fleet.Replica(service, 1).Addresses().Listen, p.Addresses().Listen}, ","))
			}
			g := child.New("gateway-"+c.name, w.binary, w.dir, nil, gateway...)
			if err := g.Start(w.ctx, "--listen", "--http-listen"); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(g.Kill)

			for _, p := range replicas {
				switch ready := newWeb(t, p.Addresses().HTTP); {
				case c.unready != "":
					ready.expect("/readyz", http.StatusServiceUnavailable, `"ready":false`, c.unready+c.reason)
					awaitLog(t, p, "level=WARN", `msg="not ready"`, c.reason)
				case c.finding == "REPLICA_CUT_OFF":
					ready.expect("/readyz", http.StatusOK, `"ready":true`) // gateways may start later
					awaitLog(t, p, "level=WARN", `msg="cannot call other services"`, c.reason)
				}
			}
			front, err := client.Dial([]string{g.Addresses().Listen})
			if err != nil {
				t.Fatal(err)
			}
			defer front.Close()
			until(t, func() string {
				list, err := front.Findings(w.ctx)
				found := map[string]bool{}
				for _, f := range list.GetFindings() {
					if f.GetKind() == c.finding && strings.Contains(f.GetMessage(), c.reason) {
						found[f.GetObject()] = true
					}
				}
				for id := range replicas {
					if !found[id] {
						return fmt.Sprintf("no finding about %s: %v, %v", id, list, err)
					}
				}
				return ""
			})
			_, said := berth(t, w.ctx, w.binary, nil, "doctor", "--gateway", g.Addresses().Listen)
			for id := range replicas {
				if !strings.Contains(said, id) || c.finding == "REPLICA_CUT_OFF" && !strings.Contains(said, id+": "+c.reason) {
					t.Errorf("doctor does not say what %s lacks: %s", id, said)
				}
			}
		})
	}
}
