package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/pkg/store"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// healthy returns the facts of a cluster with three replicas and no problem.
func healthy() Facts {
	f := Facts{Answered: true, Ready: true, TLS: true, Clock: noon}
	for i := range 2 {
		f.Gateways = append(f.Gateways, Gateway{Address: fmt.Sprintf("gateway-%d:8080", i), Asked: noon,
			Answered: noon.Add(time.Second), Now: noon.Add(time.Second / 2), EtcdCluster: "a1"})
	}
	for i, service := range []string{"registry", "executor-state", "assigner"} {
		s := &berthv1.ServiceLeadership{
			Service: service, Leader: service + "-0", Term: int64(40 + i),
			Since: timestamppb.New(noon.Add(-time.Hour)), Renewed: timestamppb.New(noon.Add(-300 * time.Millisecond)),
		}
		for n := range 3 {
			r := &berthv1.Replica{
				Id: fmt.Sprintf("%s-%d", service, n), Address: fmt.Sprintf("10.0.%d.%d:7101", i, n),
				Role: berthv1.Replica_STANDBY, Revision: 1000, Version: "v1.0.0", Now: timestamppb.New(noon),
				EtcdCluster: "a1",
			}
			if n == 0 {
				r.Role = berthv1.Replica_LEADER
			}
			s.Replicas = append(s.Replicas, r)
		}
		f.Services = append(f.Services, s)
	}
	f.Etcd = &store.Health{ClusterID: "a1", Revision: 5000, Compacted: 4000, Read: 2 * time.Millisecond}
	for n := range 3 {
		f.Etcd.Members = append(f.Etcd.Members, store.Member{
			Name: fmt.Sprintf("etcd-%d", n), Endpoint: fmt.Sprintf("10.1.0.%d:2379", n), HasLeader: true, Leads: n == 1,
			Version: "3.6.1", Size: 1 << 30, InUse: 1 << 29, Quota: 8 << 30, Index: 9000,
		})
	}
	f.Certificates = []Certificate{{Of: "gateway-0:8080", NotAfter: noon.Add(90 * 24 * time.Hour)}}
	return f
}

func lines(checks []Check, but Verdict) string {
	var b strings.Builder
	for _, c := range checks {
		if c.Verdict == but {
			continue
		}
		fmt.Fprintf(&b, "%s %s: %s", c.Verdict, c.Name, c.Seen)
		if c.Do != "" {
			fmt.Fprintf(&b, " -> %s", c.Do)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestAHealthyClusterIsOKInEveryCheck(t *testing.T) {
	checks := Evaluate(healthy())
	if bad := lines(checks, OK); bad != "" || Failed(checks) != 0 {
		t.Errorf("not OK:\n%s", bad)
	}
	for _, want := range []string{
		"OK registry leader: registry-0 leads in term 40 for 1h0m0s, renewed 300ms ago\n",
		"OK listeners: no listener is open to unknown callers of this host\n",
		"OK assigner replicas: 3, all up to date\n",
		"OK clocks: 11 processes and this host differ by less than 2s\n",
		"OK etcd cluster: all processes use a1\n",
		"OK etcd quorum: etcd-1 leads; 1 more may fail\n",
		"OK etcd space: etcd-0 uses 1.0 GiB of its quota of 8.0 GiB\n",
		"OK etcd compaction: 4000 of 5000 revisions are compacted\n",
		"OK certificates: 1 certificate; the first expires at 2026-05-30T12:00:00Z (gateway-0:8080)\n",
	} {
		if all := lines(checks, ""); !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

// TestProblems evaluates each problem alone and compares the prefixes of all lines that
// are not OK. Each of these lines must suggest a fix.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*Facts)
		want []string
	}{
		{"a gateway does not answer", func(f *Facts) { f.Gateways[1] = Gateway{Address: "gateway-1:8080", Error: "refused"} },
			[]string{"FAIL gateway: gateway-1:8080 does not answer: refused"}},
		{"a gateway is not ready", func(f *Facts) {
			f.Gateways[1].NotReady = []string{"etcd does not answer: e:1 (connection refused)", "no replica of registry answers: r:1 (no such host)"}
			f.Gateways[1].EtcdCluster = ""
		}, []string{"FAIL gateway: gateway-1:8080 is not ready: etcd does not answer: e:1 (connection refused); no replica of registry answers: r:1 (no such host) -> correct"}},
		{"processes with different etcd clusters", func(f *Facts) {
			f.Gateways[1].EtcdCluster, f.Services[0].Replicas[1].EtcdCluster = "b2", "c3"
		}, []string{"FAIL etcd cluster: a1: 10 processes; b2: gateway-1:8080; c3: registry-1 -> set the same --etcd-endpoints for all processes"}},
		{"an etcd of another cluster", func(f *Facts) { f.Etcd.ClusterID = "b2" },
			[]string{"FAIL etcd cluster: a1: 11 processes; b2: the --etcd-endpoints of this command -> set"}},
		{"old processes, which report no etcd cluster", func(f *Facts) {
			for i := range f.Gateways {
				f.Gateways[i].EtcdCluster = ""
			}
			for _, s := range f.Services {
				for _, r := range s.Replicas {
					r.EtcdCluster = ""
				}
			}
		}, []string{"WARN etcd cluster: no process reports its etcd cluster -> upgrade gateways and services"}},
		{"no gateway answers", func(f *Facts) {
			*f = Facts{Gateways: []Gateway{{Address: "g:1", Error: "refused"}}}
		}, []string{"FAIL gateway: g:1", "SKIP etcd: not checked", "SKIP certificates: not checked"}},
		{"a gateway that is called at another listener", func(f *Facts) {
			f.Gateways[1] = Gateway{Address: "gateway-1:8082", Called: "--internal-listen",
				Error: "berth.v1.Leaders/ListLeaders is served on --listen"}
		}, []string{"FAIL gateway: gateway-1:8082 is an address of --internal-listen: berth.v1.Leaders/ListLeaders is served on --listen -> set --gateway to an address of --listen"}},
		{"agents that call the wrong listener", func(f *Facts) {
			f.Listeners = []Listener{{Address: "gateway-0:8080", Want: agentsListen, Serves: publicListen}}
		}, []string{"FAIL listeners: gateway-0:8080 is an address of --listen, which rejects agents -> set an address of --agents-listen in the --gateways of agents"}},
		{"services that call a closed port", func(f *Facts) {
			f.Listeners = []Listener{{Address: "gateway-0:8082", Want: internalListen, Error: "refused"}}
		}, []string{"FAIL listeners: gateway-0:8082 does not answer: refused -> set an address of --internal-listen in the --gateways of the services"}},
		{"listeners that are open", func(f *Facts) {
			f.Listeners = []Listener{
				{Address: "10.0.0.8:8080", Serves: publicListen, Plain: true},
				{Address: "10.0.0.9:8081", Serves: agentsListen, Plain: true},
				{Address: "10.0.0.9:8082", Serves: internalListen, Plain: true, Encrypted: true},
				{Address: "127.0.0.1:8081", Serves: agentsListen, Plain: true, Encrypted: true, Loopback: true},
				{Address: "127.0.0.1:8082", Serves: internalListen, Plain: true, Loopback: true}, // not a problem
				{Address: "10.0.0.7:8081", Serves: agentsListen, Encrypted: true},                // not a problem either
			}
		}, []string{
			"WARN listeners: 10.0.0.8:8080 (--listen) accepts plain text: every caller has all roles, including operator -> set --tls-cert, --tls-key and --tls-ca instead of --insecure",
			"WARN listeners: 10.0.0.9:8081 (--agents-listen) accepts plain text: every caller can act as any agent -> set",
			"WARN listeners: 10.0.0.9:8082 (--internal-listen) accepts plain text as well as TLS: every caller can act as any service in plain text -> set --tls-mode require",
			"WARN listeners: 127.0.0.1:8081 (--agents-listen) accepts plain text as well as TLS",
		}},
		{"a listener that requires a certificate", func(f *Facts) {
			f.Listeners = []Listener{{Address: "gateway-0:8082", Want: internalListen, Locked: true}}
		}, []string{"SKIP listeners: gateway-0:8082 requires a certificate -> to check which listener it is, set --tls-cert"}},
		{"no leader", func(f *Facts) { f.Services[2].Leader = "" },
			[]string{"FAIL assigner leader: no leader"}},
		{"a replica does not answer", func(f *Facts) {
			f.Services[0].Replicas[2] = &berthv1.Replica{Address: "10.0.0.2:7101", Role: berthv1.Replica_UNREACHABLE,
				Error: "no such host"}
		}, []string{"WARN registry replicas: 1 of 3 do not answer: 10.0.0.2:7101 (no such host)"}},
		{"no replica answers", func(f *Facts) {
			f.Services[0] = &berthv1.ServiceLeadership{Service: "registry", Replicas: []*berthv1.Replica{
				{Address: "10.0.0.1:7199", Role: berthv1.Replica_UNREACHABLE, Error: "connection refused"},
				{Address: "10.0.0.2:7199", Role: berthv1.Replica_UNREACHABLE}, // of an older gateway
			}}
		}, []string{"FAIL registry leader: not known: no replica answers the gateway, and calls to registry wait -> start them, and check the addresses in the gateway's --registry",
			"WARN registry replicas: 2 of 2 do not answer: 10.0.0.1:7199 (connection refused), 10.0.0.2:7199"}},
		{"a replica is behind", func(f *Facts) { f.Services[1].Replicas[1].Behind = 5000 },
			[]string{"WARN executor-state replicas: behind: executor-state-1 by 5000 revisions"}},
		{"a standby without etcd", func(f *Facts) {
			f.Services[1].Replicas[1].NoView, f.Services[1].Replicas[1].Lacks = true, []string{"etcd does not answer: e:1 (no such host)"}
		}, []string{"WARN executor-state replicas: executor-state-1: etcd does not answer: e:1 (no such host) -> check"}},
		{"a leader without gateways", func(f *Facts) {
			f.Services[0].Replicas[0].Lacks = []string{"no gateway answers: g:8082 (connection refused)"}
		}, []string{"FAIL registry replicas: registry-0: no gateway answers: g:8082 (connection refused) -> check"}},
		{"a replica without a view", func(f *Facts) { f.Services[1].Replicas[1].NoView = true },
			[]string{"WARN executor-state replicas: no view yet: executor-state-1 -> wait until"}},
		{"two replicas", func(f *Facts) { f.Services[0].Replicas = f.Services[0].Replicas[:2] },
			[]string{"WARN registry replicas: only 2"}},
		{"an upgrade under way", func(f *Facts) { f.Services[0].Replicas[1].Version = "v1.1.0" },
			[]string{"WARN versions: v1.0.0: assigner-0 assigner-1 assigner-2 executor-state-0 executor-state-1 executor-state-2 registry-0 registry-2; v1.1.0: registry-1 -> finish the upgrade"}},
		{"not ready", func(f *Facts) { f.Ready = false },
			[]string{"WARN readiness: the registry is not ready"}},
		{"the registry does not answer", func(f *Facts) { f.Ready, f.ReadyError = false, "no answer" },
			[]string{"FAIL readiness: not known: no answer"}},
		{"findings", func(f *Facts) {
			for i := range 5 {
				f.Findings = append(f.Findings, &berthv1.Finding{Kind: "QUARANTINED", Object: fmt.Sprintf("train/gpu/%d.1", i)})
			}
			f.Findings = append(f.Findings, &berthv1.Finding{Kind: "SERVICE_UNAVAILABLE", Object: "assigner"})
			f.Findings = append(f.Findings, &berthv1.Finding{Kind: "GATEWAY_NOT_READY", Object: "gateway-0"})
		}, []string{"FAIL findings: 1 GATEWAY_NOT_READY: gateway-0 ->",
			"WARN findings: 5 QUARANTINED: train/gpu/0.1, train/gpu/1.1, train/gpu/2.1, … ->",
			"FAIL findings: 1 SERVICE_UNAVAILABLE: assigner ->"}},
		{"findings without an answer", func(f *Facts) { f.FindingsError = "no answer" },
			[]string{"FAIL findings: findings cannot be listed: no answer"}},
		{"clocks apart", func(f *Facts) {
			f.Gateways[1].Now = noon.Add(-time.Minute)
			f.Services[0].Replicas[1].Now = timestamppb.New(noon.Add(time.Hour))
		}, []string{"WARN clocks: gateway-1:8080 is 1m0s behind this host, registry-1 is 1h0m0s ahead of the gateway"}},
		{"old processes", func(f *Facts) {
			for i := range f.Gateways {
				f.Gateways[i].Now = time.Time{}
			}
		}, []string{"WARN clocks: no process reports its time"}},
		{"etcd in plain text", func(f *Facts) { f.PlainEtcd = []string{"10.1.0.0:2379", "10.1.0.1:2379"} },
			[]string{"WARN etcd TLS: called in plain text: 10.1.0.0:2379, 10.1.0.1:2379 -> use https:// in --etcd-endpoints"}},
		{"a member of etcd does not answer", func(f *Facts) {
			f.Etcd.Members[2] = store.Member{Name: "etcd-2", Endpoint: "10.1.0.2:2379", Error: "refused"}
		}, []string{"WARN etcd members: 1 of 3 do not answer: etcd-2: refused",
			"WARN etcd quorum: etcd-1 leads; if one more fails, nothing can be written"}},
		{"etcd has no quorum", func(f *Facts) {
			for i := range 2 {
				f.Etcd.Members[i] = store.Member{Name: fmt.Sprintf("etcd-%d", i), Error: "refused"}
			}
			f.Etcd.ReadError = "deadline exceeded"
		}, []string{"WARN etcd members: 2 of 3",
			"FAIL etcd quorum: 1 of 3 members answer, and a read fails: deadline exceeded", "WARN etcd alarms: not known",
			"WARN etcd latency: not known"}},
		{"no etcd at all", func(f *Facts) {
			f.Etcd = &store.Health{Members: []store.Member{{Endpoint: "e:2379", Error: "refused"}}, ReadError: "refused"}
		}, []string{"FAIL etcd members: 1 of 1 do not answer: e:2379: refused"}},
		{"an election", func(f *Facts) { f.Etcd.Members[1].Leads = false },
			[]string{"WARN etcd quorum: no member that answers leads"}},
		{"one member", func(f *Facts) { f.Etcd.Members = f.Etcd.Members[1:2] },
			[]string{"WARN etcd quorum: etcd-1 leads; 1 member, none may fail"}},
		{"a learner", func(f *Facts) {
			f.Etcd.Members = append(f.Etcd.Members, store.Member{Name: "etcd-3", Learner: true, Version: "3.6.1", Index: 9000})
		}, []string{"WARN etcd members: not yet voting: etcd-3"}},
		{"no space", func(f *Facts) { f.Etcd.Alarms = []string{"NOSPACE"} },
			[]string{"FAIL etcd alarms: NOSPACE: etcd rejects writes"}},
		{"damaged data", func(f *Facts) { f.Etcd.Alarms = []string{"CORRUPT"} },
			[]string{"FAIL etcd alarms: CORRUPT"}},
		{"nearly full", func(f *Facts) { f.Etcd.Members[0].Size, f.Etcd.Members[0].InUse = 7<<30, 6<<30 },
			[]string{"WARN etcd space: etcd-0 uses 7.0 GiB of its quota of 8.0 GiB -> check that history is compacted"}},
		{"full of holes", func(f *Facts) { f.Etcd.Members[2].Size = 78 << 27 },
			[]string{"FAIL etcd space: etcd-2 uses 9.8 GiB of its quota of 8.0 GiB, of which 512 MiB are in use -> defragment"}},
		{"an etcd that does not report its quota", func(f *Facts) {
			for i := range f.Etcd.Members {
				f.Etcd.Members[i].Quota = 0
			}
		}, []string{"WARN etcd space: no member reports its quota"}},
		{"slow", func(f *Facts) { f.Etcd.Read = 150 * time.Millisecond },
			[]string{"WARN etcd latency: a read through the quorum takes 150ms"}},
		{"so slow that a renewal is sent twice", func(f *Facts) { f.Etcd.Read = time.Second },
			[]string{"WARN etcd latency: a read through the quorum takes 1s -> give etcd its own disks, processors and network: at a TTL of 5s, no leader is elected if a write takes longer than 1.67s, and leaders resign if renewals take longer than 2.5s"}},
		{"too slow to elect", func(f *Facts) { f.Etcd.Read = 1700 * time.Millisecond },
			[]string{"FAIL etcd latency: a read through the quorum takes 1.7s"}},
		{"a member lags", func(f *Facts) { f.Etcd.Members[0].Index = 1000 },
			[]string{"WARN etcd lag: behind: etcd-0 by 8000 entries"}},
		{"etcd's own upgrade", func(f *Facts) { f.Etcd.Members[0].Version = "3.7.3" },
			[]string{"WARN etcd versions: 3.6.1, 3.7.3 -> finish the upgrade"}},
		{"an old etcd", func(f *Facts) {
			for i := range f.Etcd.Members {
				f.Etcd.Members[i].Version = "3.4.30"
			}
		}, []string{"WARN etcd versions: 3.4.30 -> upgrade to 3.5 or later"}},
		{"no compaction", func(f *Facts) { f.Etcd.Compacted, f.Etcd.Revision = 0, 2_000_000 },
			[]string{"WARN etcd compaction: nothing has been compacted, at revision 2000000"}},
		{"certificates", func(f *Facts) {
			f.Certificates = append(f.Certificates, Certificate{Of: "b:1", NotAfter: noon.Add(-time.Hour)},
				Certificate{Of: "c:1", NotAfter: noon.Add(time.Hour)}, Certificate{Of: "d:1", Error: "refused"},
				Certificate{Of: "e:1", NotBefore: noon.Add(time.Hour), NotAfter: noon.Add(2 * time.Hour)})
		}, []string{"FAIL certificates: b:1: expired at 2026-03-01T11:00:00Z",
			"WARN certificates: c:1: expires at 2026-03-01T13:00:00Z", "WARN certificates: d:1: refused",
			"FAIL certificates: e:1: is not valid before 2026-03-01T13:00:00Z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := healthy()
			c.make(&f)
			checks := Evaluate(f)
			got := strings.Split(strings.TrimSuffix(lines(checks, OK), "\n"), "\n")
			if len(got) != len(c.want) {
				t.Fatalf("got %d lines:\n%s\nwant %d:\n%s", len(got), strings.Join(got, "\n"), len(c.want),
					strings.Join(c.want, "\n"))
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("got  %s\nwant %s", got[i], want)
				}
			}
			for _, check := range checks {
				if check.Verdict != OK && check.Do == "" {
					t.Errorf("%s: %s suggests no fix", check.Verdict, check.Name)
				}
			}
		})
	}
}

// Collect reports the endpoints of etcd beyond loopback without TLS, whether they answer or not.
func TestCollectReportsPlainEtcd(t *testing.T) {
	f, err := Collect(t.Context(), Config{Patience: time.Millisecond,
		Etcd: store.DialConfig{Endpoints: []string{"127.0.0.1:1", "0.0.0.0:1"}}})
	if err != nil || len(f.PlainEtcd) != 1 || f.PlainEtcd[0] != "0.0.0.0:1" {
		t.Errorf("%q: %v", f.PlainEtcd, err)
	}
}
