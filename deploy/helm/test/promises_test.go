package chart

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// services has the ports and the key of the values of each service.
var services = []struct {
	name, values string
	calls, http  int32
}{
	{"registry", "registry", 7101, 7181},
	{"executor-state", "executorState", 7102, 7182},
	{"assigner", "assigner", 7103, 7183},
}

// replicas returns the number of replicas of a component in a value set.
func (r *release) replicas(component string, standard int) int {
	if v, ok := r.values[component].(map[string]any); ok {
		if n, ok := v["replicas"].(float64); ok {
			return int(n)
		}
	}
	return standard
}

// encrypted reports whether the processes of a release have certificates.
func (r *release) encrypted() bool {
	tls, _ := r.values["tls"].(map[string]any)
	return tls["enabled"] == true
}

func eachRelease(t *testing.T, test func(t *testing.T, r *release)) {
	for _, name := range valueSets(t) {
		t.Run(name, func(t *testing.T) { test(t, decoded(t, name)) })
	}
}

// TestReplicaAddresses checks the addresses of replicas. The liveness probe of an old
// leader needs the replica's own address. So gateways list every replica by the name of
// its pod, replicas advertise the same names, and the Service that gives pods these names
// is headless.
func TestReplicaAddresses(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		gateway := flags(t, get[*appsv1.Deployment](t, r, "berth-gateway").Spec.Template.Spec.Containers[0])
		for _, s := range services {
			set := get[*appsv1.StatefulSet](t, r, "berth-"+s.name)
			headless := get[*corev1.Service](t, r, set.Spec.ServiceName)
			if headless.Spec.ClusterIP != corev1.ClusterIPNone || !headless.Spec.PublishNotReadyAddresses {
				t.Errorf("%s: service %s is not headless", s.name, headless.Name)
			}

			n := r.replicas(s.values, 3)
			if int(*set.Spec.Replicas) != n {
				t.Errorf("%s: %d replicas, want %d", s.name, *set.Spec.Replicas, n)
			}
			advertised := flags(t, set.Spec.Template.Spec.Containers[0])["advertise"]
			var want []string
			for i := range n {
				pod := fmt.Sprintf("%s-%d", set.Name, i)
				address := fmt.Sprintf("%s.%s.%s.svc.cluster.local:%d", pod, headless.Name, namespace, s.calls)
				want = append(want, address)
				if got := strings.ReplaceAll(advertised, "$(POD_NAME)", pod); got != address {
					t.Errorf("%s advertises %s, want %s", pod, got, address)
				}
			}
			if got := gateway[s.name]; got != strings.Join(want, ",") {
				t.Errorf("gateways list %s\nwant %s", got, strings.Join(want, ","))
			}
		}
	})
}

// TestGatewayAddresses checks that services and agents call gateways at virtual
// addresses, which is safe because no peer probes the liveness of gateways. The ports for
// agents and services have separate addresses, which no load balancer exposes.
func TestGatewayAddresses(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		gateway := r.pods()["berth-gateway"].Spec.Containers[0]
		for name, want := range map[string]struct {
			port int32
			flag string
		}{
			"berth-gateway":          {8080, "listen"},
			"berth-gateway-agents":   {8081, "agents-listen"},
			"berth-gateway-internal": {8082, "internal-listen"},
		} {
			s := get[*corev1.Service](t, r, name)
			if s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) != 1 || s.Spec.Ports[0].Port != want.port {
				t.Errorf("%s is %+v", name, s.Spec)
			}
			if name != "berth-gateway" && s.Spec.Type != corev1.ServiceTypeClusterIP {
				t.Errorf("%s is of type %s", name, s.Spec.Type)
			}
			if to := port(gateway, s.Spec.Ports[0].TargetPort.StrVal); to != fmt.Sprint(want.port) ||
				to != suffix(flags(t, gateway)[want.flag]) {
				t.Errorf("%s targets port %s, but gateways have --%s=%s", name, to, want.flag, flags(t, gateway)[want.flag])
			}
		}
		for pod, template := range r.pods() {
			want := "berth-gateway-internal." + namespace + ".svc.cluster.local:8082"
			if pod == "berth-agent" {
				want = "berth-gateway-agents." + namespace + ".svc.cluster.local:8081"
			}
			if got, has := flags(t, template.Spec.Containers[0])["gateways"]; has && got != want {
				t.Errorf("%s calls the gateways at %s, want %s", pod, got, want)
			}
		}
	})
}

func TestEtcdEndpoints(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		var want string
		given := r.values["etcd"].(map[string]any)
		if endpoints, ok := given["endpoints"].([]any); ok {
			want = strings.Trim(strings.ReplaceAll(fmt.Sprint(endpoints), " ", ","), "[]")
		} else {
			var list []string
			for i := range 3 {
				list = append(list, fmt.Sprintf("berth-etcd-%d.berth-etcd.%s.svc.cluster.local:2379", i, namespace))
			}
			want = strings.Join(list, ",")
			trial(t, r)
		}
		for _, name := range []string{"berth-registry", "berth-executor-state", "berth-assigner", "berth-gateway"} {
			if got := flags(t, r.pods()[name].Spec.Containers[0])["etcd-endpoints"]; got != want {
				t.Errorf("%s calls etcd at %s, want %s", name, got, want)
			}
		}
	})
}

// trial checks the etcd for trials: its members find each other by address, keep their
// data when they restart, compact their history, and have a quota above 2 GiB.
func trial(t *testing.T, r *release) {
	t.Helper()
	set := get[*appsv1.StatefulSet](t, r, "berth-etcd")
	if s := get[*corev1.Service](t, r, set.Spec.ServiceName); s.Spec.ClusterIP != corev1.ClusterIPNone ||
		!s.Spec.PublishNotReadyAddresses {
		t.Error("members cannot find each other before they are ready")
	}
	given := flags(t, set.Spec.Template.Spec.Containers[0])
	for i := range 3 {
		pod := fmt.Sprintf("berth-etcd-%d", i)
		own := strings.ReplaceAll(given["name"]+"="+given["initial-advertise-peer-urls"], "$(POD_NAME)", pod)
		if !strings.Contains(given["initial-cluster"]+",", own+",") {
			t.Errorf("%s is not a member of %s", own, given["initial-cluster"])
		}
	}
	if given["auto-compaction-mode"] != "periodic" || given["auto-compaction-retention"] != "10m" ||
		given["quota-backend-bytes"] == "" || strings.Contains(given["quota-backend-bytes"], "e+") {
		t.Errorf("etcd has no compaction or no quota: %v", given)
	}
	mount := set.Spec.Template.Spec.Containers[0].VolumeMounts[0]
	if claim := set.Spec.VolumeClaimTemplates[0]; claim.Name != mount.Name ||
		!strings.HasPrefix(given["data-dir"], mount.MountPath+"/") {
		t.Errorf("the data is in %s, the volume at %s", given["data-dir"], mount.MountPath)
	}
}

// TestProbes checks that the liveness probe is /healthz and the readiness probe is
// /readyz. A probe for leadership would restart standbys or remove them from their
// Service. For a gateway, /readyz is the startup probe: later, a gateway that lacks a service or
// etcd stays in its Services, because all gateways lack it.
func TestProbes(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			c := template.Spec.Containers[0]
			if c.ReadinessProbe == nil {
				t.Fatalf("%s has no readiness probe", name)
			}
			live, ready := probed(c.LivenessProbe), probed(c.ReadinessProbe)
			switch name {
			case "berth-agent":
				if c.LivenessProbe != nil || ready != "/readyz" ||
					(c.ReadinessProbe.HTTPGet.Scheme == corev1.URISchemeHTTPS) != r.encrypted() ||
					port(c, "http") != suffix(flags(t, c)["http-listen"]) {
					t.Errorf("agents: liveness %v, readiness %v, ports %v", c.LivenessProbe, c.ReadinessProbe, c.Ports)
				}
			case "berth-etcd":
				if live != "/livez" || ready != "/readyz" {
					t.Errorf("etcd: liveness %s, readiness %s", live, ready)
				}
			default:
				probes := []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe}
				start, want := "", [3]string{"/healthz", "/readyz", ""}
				if name == "berth-gateway" {
					want = [3]string{"/healthz", "/healthz", "/readyz"}
				}
				if c.StartupProbe != nil {
					start = probed(c.StartupProbe)
					probes = append(probes, c.StartupProbe)
				}
				if got := [3]string{live, ready, start}; got != want {
					t.Errorf("%s: liveness, readiness and startup are %q, want %q", name, got, want)
				}
				for _, probe := range probes {
					if (probe.HTTPGet.Scheme == corev1.URISchemeHTTPS) != r.encrypted() {
						t.Errorf("%s: probes use %s", name, probe.HTTPGet.Scheme)
					}
				}
				if port(c, "http") != suffix(flags(t, c)["http-listen"]) || port(c, "calls") != suffix(flags(t, c)["listen"]) {
					t.Errorf("%s names ports %v and listens elsewhere", name, c.Ports)
				}
			}
		}
	})
}

func probed(p *corev1.Probe) string {
	if p == nil || p.HTTPGet == nil {
		return ""
	}
	return p.HTTPGet.Path
}

func port(c corev1.Container, name string) string {
	for _, p := range c.Ports {
		if p.Name == name {
			return fmt.Sprint(p.ContainerPort)
		}
	}
	return "none"
}

func suffix(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// TestGracePeriods checks that the grace period of Kubernetes is longer than the pause
// before a stop plus the longest stop.
func TestGracePeriods(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			if name == "berth-etcd" {
				continue
			}
			c := template.Spec.Containers[0]
			takes, err := time.ParseDuration(flags(t, c)["stop-timeout"])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			// The service of the gateways still routes to a stopping gateway for a while.
			switch hook := c.Lifecycle; {
			case name != "berth-gateway":
				if hook != nil {
					t.Errorf("%s has a hook, which delays its SIGTERM", name)
				}
			case hook == nil || hook.PreStop == nil || hook.PreStop.Sleep == nil:
				t.Errorf("gateways close their ports while the service routes callers to them")
			default:
				takes += time.Duration(hook.PreStop.Sleep.Seconds) * time.Second
			}
			grace := time.Duration(*template.Spec.TerminationGracePeriodSeconds) * time.Second
			if grace < takes+5*time.Second {
				t.Errorf("%s: the grace period is %v, but a stop takes up to %v", name, grace, takes)
			}
		}
	})
}

// TestReplicaSpread checks that at most one replica of a component is disrupted at a
// time, and that replicas are spread over hosts.
func TestReplicaSpread(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			if name == "berth-agent" {
				continue
			}
			component := template.Labels["app.kubernetes.io/component"]
			n := 3
			switch set, ok := find[*appsv1.StatefulSet](r, name); {
			case ok:
				n = int(*set.Spec.Replicas)
				if set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement ||
					set.Spec.UpdateStrategy.Type != appsv1.RollingUpdateStatefulSetStrategyType {
					t.Errorf("%s: %s, %s", name, set.Spec.PodManagementPolicy, set.Spec.UpdateStrategy.Type)
				}
			default:
				if scaler, scaled := find[*autoscalingv2.HorizontalPodAutoscaler](r, name); scaled {
					n = int(*scaler.Spec.MinReplicas)
				} else {
					n = int(*get[*appsv1.Deployment](t, r, name).Spec.Replicas)
				}
			}
			budget, has := find[*policyv1.PodDisruptionBudget](r, name)
			switch {
			case has != (n > 1):
				t.Errorf("%s: %d replicas, a budget: %v", name, n, has)
			case has && budget.Spec.MaxUnavailable.IntValue() != 1:
				t.Errorf("%s: %v may be away", name, budget.Spec.MaxUnavailable)
			}

			if name == "berth-gateway" && r.set == "testdata/placement.yaml" {
				continue // TestPlacement checks its own constraints
			}
			spread := map[string]corev1.TopologySpreadConstraint{}
			for _, c := range template.Spec.TopologySpreadConstraints {
				spread[c.TopologyKey] = c
				if c.MaxSkew != 1 || c.LabelSelector.MatchLabels["app.kubernetes.io/component"] != component {
					t.Errorf("%s is spread by %+v", name, c)
				}
			}
			if spread["kubernetes.io/hostname"].WhenUnsatisfiable != corev1.DoNotSchedule {
				t.Errorf("%s: replicas may share a host", name)
			}
			if _, ok := spread["topology.kubernetes.io/zone"]; !ok {
				t.Errorf("%s: replicas may share a zone", name)
			}
		}
	})
}

// TestUpgradeKeepsEtcd checks that a new image of Berth does not restart etcd.
func TestUpgradeKeepsEtcd(t *testing.T) {
	values := readValues(t, "testdata/trial.yaml")
	before := decodedValues(t, "before", values).pods()
	values["image"] = map[string]any{"tag": "2.0"}
	after := decodedValues(t, "after", values).pods()
	for name := range before {
		if same := reflect.DeepEqual(before[name], after[name]); same != (name == "berth-etcd") {
			t.Errorf("%s is the same: %v", name, same)
		}
	}
}

// TestContainerSecurity checks that no container runs as root, writes to its image, or
// gets variables of Kubernetes Services that look like options. An agent that runs workers
// as other users runs as root, with the capabilities that this needs.
func TestContainerSecurity(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		for name, template := range r.pods() {
			pod := template.Spec
			if pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
				t.Errorf("%s: variables BERTH_… of services would be read as options", name)
			}
			if pod.AutomountServiceAccountToken == nil || *pod.AutomountServiceAccountToken {
				t.Errorf("%s has a token of Kubernetes", name)
			}
			_, privileged := flags(t, pod.Containers[0])["worker-uids"]
			var add []corev1.Capability
			if privileged {
				add = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID"}
			}
			s := pod.SecurityContext
			unprivileged := s.RunAsNonRoot != nil && *s.RunAsNonRoot && (s.RunAsUser == nil || *s.RunAsUser != 0)
			if unprivileged == privileged || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s runs as %+v", name, s)
			}
			for _, c := range append(pod.InitContainers, pod.Containers...) {
				s := c.SecurityContext
				if s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || len(s.Capabilities.Drop) != 1 ||
					s.Capabilities.Drop[0] != "ALL" || !slices.Equal(s.Capabilities.Add, add) {
					t.Errorf("%s runs as %+v", name, s)
				}
			}
		}
	})
}

// TestNetworkPolicies checks that only the peers that need a port can reach the port.
func TestNetworkPolicies(t *testing.T) {
	reachable(t, decoded(t, "testdata/agents.yaml"), map[string]map[string]string{
		"berth-registry":       {"calls": "berth-gateway berth-registry", "http": "*"},
		"berth-executor-state": {"calls": "berth-executor-state berth-gateway", "http": "*"},
		"berth-assigner":       {"calls": "berth-assigner berth-gateway", "http": "*"},
		"berth-agent":          {"requests": "berth-assigner berth-executor-state", "http": "*"},
		"berth-etcd": {"client": "berth-assigner berth-executor-state berth-gateway berth-registry",
			"peer": "berth-etcd", "http": "*"},
		"berth-gateway": {"calls": "*", "agents": "berth-agent",
			"internal": "berth-assigner berth-executor-state berth-registry", "http": "*"},
	})
	if _, has := find[*networkingv1.NetworkPolicy](decoded(t, "testdata/minimal.yaml"), "berth-registry"); has {
		t.Error("policies were rendered although they are disabled")
	}
}

// TestEmptyPeerList checks that an empty list of peers in the values admits no pod. In
// Kubernetes a rule with an empty list admits every pod, so there must be no rule.
func TestEmptyPeerList(t *testing.T) {
	values := readValues(t, "testdata/trial.yaml") // this release has no agents
	values["networkPolicy"] = map[string]any{"callers": []any{}, "metrics": []any{}}
	reachable(t, decodedValues(t, "closed", values), map[string]map[string]string{
		"berth-gateway": {"internal": "berth-assigner berth-executor-state berth-registry"},
	})
	values["networkPolicy"] = map[string]any{"callers": []any{}, "metrics": []any{},
		"agents": []any{map[string]any{"podSelector": map[string]any{}}}}
	reachable(t, decodedValues(t, "open to agents", values), map[string]map[string]string{
		"berth-gateway": {"agents": "*", "internal": "berth-assigner berth-executor-state berth-registry"},
	})
}

// reachable checks which pods reach which ports, by the network policies of a release.
func reachable(t *testing.T, r *release, ports map[string]map[string]string) {
	t.Helper()
	for name, want := range ports {
		policy := get[*networkingv1.NetworkPolicy](t, r, name)
		for _, rule := range policy.Spec.Ingress {
			port := rule.Ports[0].Port.StrVal
			if got := reach(t, r, rule.From); got != want[port] {
				t.Errorf("%s: port %s is reached by %q, want %q", name, port, got, want[port])
			}
			delete(want, port)
		}
		if len(want) != 0 {
			t.Errorf("%s: no pod reaches %v", name, want)
		}
	}
}

// TestPublicNames checks that REST callers in the Kubernetes cluster may use the names of
// the gateways' Service in addition to the names in the values.
func TestPublicNames(t *testing.T) {
	eachRelease(t, func(t *testing.T, r *release) {
		names := strings.Split(flags(t, r.pods()["berth-gateway"].Spec.Containers[0])["public-names"], ",")
		want := []string{"berth-gateway", "berth-gateway." + namespace, "berth-gateway." + namespace + ".svc",
			"berth-gateway." + namespace + ".svc.cluster.local"}
		if v, ok := r.values["gateway"].(map[string]any); ok {
			if options, ok := v["options"].(map[string]any); ok {
				want = append(want, words(options["public-names"])...)
			}
			ingress, _ := v["ingress"].(map[string]any)
			routes, _ := v["routes"].(map[string]any)
			want = slices.Concat(want, words(ingress["hosts"]), words(routes["rest"]), words(routes["grpc"]),
				words(routes["passthrough"]))
		}
		if !slices.Equal(names, want) {
			t.Errorf("--public-names are %q, want %q", names, want)
		}
	})
}

// words returns a list in the values.
func words(list any) (all []string) {
	given, _ := list.([]any)
	for _, word := range given {
		all = append(all, word.(string))
	}
	return all
}
