package chart

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestImages checks that every image is pulled from the registry in the values, instead of
// the registry in its name, with the secrets of the values in both usual forms.
func TestImages(t *testing.T) {
	pods := decoded(t, "testdata/openshift.yaml").pods()
	if len(pods) != 6 {
		t.Fatalf("%d kinds of pods", len(pods))
	}
	for name, template := range pods {
		image := template.Spec.Containers[0].Image
		want := "registry.example.com/mirror/berth/berth:"
		end := "@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
		switch name {
		case "berth-etcd":
			want, end = "registry.example.com/mirror/etcd-development/etcd:", ""
		case "berth-agent":
			want, end = "registry.example.com/mirror/workers:7", ""
		}
		if !strings.HasPrefix(image, want) || !strings.HasSuffix(image, end) {
			t.Errorf("%s has the image %s, want %s…%s", name, image, want, end)
		}
		secrets := []corev1.LocalObjectReference{{Name: "mirror"}, {Name: "workers"}, {Name: "more"}}
		if !slices.Equal(template.Spec.ImagePullSecrets, secrets) {
			t.Errorf("%s pulls with %v", name, template.Spec.ImagePullSecrets)
		}
	}
	for _, c := range []struct {
		registry, repository, want string
	}{
		{"", "berth", "berth:1"},
		{"", "quay.io/berth", "quay.io/berth:1"},
		{"registry.example.com", "berth", "registry.example.com/berth:1"},
		{"registry.example.com:5000/", "team/berth", "registry.example.com:5000/team/berth:1"},
		{"registry.example.com", "localhost:5000/berth", "registry.example.com/berth:1"},
	} {
		values := readValues(t, "testdata/minimal.yaml")
		values["image"] = map[string]any{"registry": c.registry, "repository": c.repository, "tag": "1"}
		got := decodedValues(t, "image", values).pods()["berth-registry"].Spec.Containers[0].Image
		if got != c.want {
			t.Errorf("%s in %q is %s, want %s", c.repository, c.registry, got, c.want)
		}
	}
}

// TestClusterImposesUsers checks that a cluster can impose users and groups, and that a value
// of a security context replaces only its own field.
func TestClusterImposesUsers(t *testing.T) {
	for name, template := range decoded(t, "testdata/openshift.yaml").pods() {
		want := &corev1.PodSecurityContext{
			RunAsNonRoot:        new(true),
			FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		if name == "berth-agent" {
			want.SupplementalGroups = []int64{44}
		}
		if !reflect.DeepEqual(template.Spec.SecurityContext, want) {
			t.Errorf("%s runs as %+v", name, template.Spec.SecurityContext)
		}
		c := template.Spec.Containers[0].SecurityContext
		if !*c.RunAsNonRoot || !*c.ReadOnlyRootFilesystem || *c.AllowPrivilegeEscalation ||
			!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: the container runs as %+v", name, c)
		}
	}
	agent := decoded(t, "testdata/openshift.yaml").pods()["berth-agent"]
	volume, _ := volumeAt(t, agent, "/etc/berth/tls")
	if volume.CSI.VolumeAttributes["csi.cert-manager.io/fs-group"] != "" {
		t.Errorf("the certificate belongs to a group that the cluster may not impose: %v", volume.CSI.VolumeAttributes)
	}
	values := readValues(t, "testdata/agents.yaml")
	values["agent"].(map[string]any)["podSecurityContext"] = map[string]any{"runAsUser": nil, "fsGroup": nil}
	values["agent"].(map[string]any)["containerSecurityContext"] = map[string]any{"capabilities": nil}
	pods := decodedValues(t, "nulls", values).pods()
	agent = pods["berth-agent"]
	if as := agent.Spec.SecurityContext; as.RunAsUser != nil || as.FSGroup != nil || *as.RunAsGroup != 65532 ||
		agent.Spec.Containers[0].SecurityContext.Capabilities != nil {
		t.Errorf("agents on which the cluster imposes users run as %+v, %+v", as, agent.Spec.Containers[0].SecurityContext)
	}
	if as := pods["berth-registry"].Spec.SecurityContext; *as.RunAsUser != 65532 {
		t.Errorf("the values of agents change the registry: %+v", as)
	}
	values = readValues(t, "testdata/cloud.yaml")
	values["agent"].(map[string]any)["containerSecurityContext"] = map[string]any{
		"capabilities": map[string]any{"add": []any{"SYS_NICE"}}}
	agent = decodedValues(t, "capability", values).pods()["berth-agent"]
	if as := agent.Spec.SecurityContext; *as.RunAsUser != 0 || *as.FSGroup != 0 || as.RunAsNonRoot != nil {
		t.Errorf("an agent with users for workers runs as %+v", as)
	}
	added := agent.Spec.Containers[0].SecurityContext.Capabilities.Add
	if len(added) != 8 || !slices.Contains(added, "SYS_NICE") || !slices.Contains(added, "SETUID") {
		t.Errorf("an agent with users for workers has the capabilities %v", added)
	}
	values = readValues(t, "testdata/agents.yaml")
	values["podSecurityContext"], values["containerSecurityContext"] = nil, nil
	for name, template := range decodedValues(t, "no context", values).pods() {
		if template.Spec.SecurityContext != nil || template.Spec.Containers[0].SecurityContext != nil {
			t.Errorf("%s has a security context that the values remove", name)
		}
	}
}

// TestServiceAccounts checks that agents, whose workers are other programs, have a service
// account of their own, and that no pod gets a token that its values do not want.
func TestServiceAccounts(t *testing.T) {
	for set, want := range map[string]struct{ pods, agents string }{
		"testdata/agents.yaml":    {"", ""},
		"testdata/openshift.yaml": {"berth", "renderers"},
		"testdata/cloud.yaml":     {"", "berth-agent"},
	} {
		r := decoded(t, set)
		for name, template := range r.pods() {
			account := want.pods
			if name == "berth-agent" {
				account = want.agents
			}
			if template.Spec.ServiceAccountName != account {
				t.Errorf("%s: %s has the account %q", set, name, template.Spec.ServiceAccountName)
			}
		}
		for _, name := range []string{"berth", "berth-agent", "renderers"} {
			created, has := find[*corev1.ServiceAccount](r, name)
			if should := name == want.pods || name == want.agents && name != "renderers"; has != should {
				t.Errorf("%s: the account %s exists: %v", set, name, has)
			} else if has && *created.AutomountServiceAccountToken {
				t.Errorf("%s: the account %s gives its token to every pod", set, name)
			}
		}
	}
	values := readValues(t, "testdata/openshift.yaml")
	values["serviceAccount"].(map[string]any)["automount"] = true
	r := decodedValues(t, "token", values)
	for name, template := range r.pods() {
		if *template.Spec.AutomountServiceAccountToken != (name != "berth-agent") {
			t.Errorf("%s mounts a token: %v", name, *template.Spec.AutomountServiceAccountToken)
		}
	}
	account := get[*corev1.ServiceAccount](t, r, "berth")
	if account.Annotations["example.com/owner"] != "platform" || !*account.AutomountServiceAccountToken {
		t.Errorf("the account is %+v", account)
	}
}

// TestPublicService checks that every field of the public Service can be set, that the other
// Services do not have them, and that no field is set by default.
func TestPublicService(t *testing.T) {
	r := decoded(t, "testdata/cloud.yaml")
	public := get[*corev1.Service](t, r, "berth-gateway")
	got := public.Spec
	got.Ports, got.Selector = nil, nil
	want := corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.80", ExternalIPs: []string{"192.0.2.8"},
		SessionAffinity: corev1.ServiceAffinityClientIP, LoadBalancerIP: "192.0.2.7",
		LoadBalancerSourceRanges: []string{"10.0.0.0/8", "fd00::/8"}, LoadBalancerClass: new("service.k8s.aws/nlb"),
		ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal, HealthCheckNodePort: 32081,
		InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyCluster),
		IPFamilies:            []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol},
		IPFamilyPolicy:        new(corev1.IPFamilyPolicyPreferDualStack), AllocateLoadBalancerNodePorts: new(false),
	}
	if !reflect.DeepEqual(got, want) || public.Spec.Ports[0].NodePort != 32080 || public.Labels["team"] != "platform" {
		t.Errorf("the Service is %+v with the ports %v and the labels %v\nwant %+v", got, public.Spec.Ports, public.Labels,
			want)
	}
	got = get[*corev1.Service](t, decoded(t, "testdata/trial.yaml"), "berth-gateway").Spec
	got.Ports, got.Selector = nil, nil
	if !reflect.DeepEqual(got, corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}) {
		t.Errorf("by default the Service is %+v", got)
	}
}

// TestAddressFamilies checks that processes accept calls to addresses of IPv6 if the Service
// has them.
func TestAddressFamilies(t *testing.T) {
	for name, template := range decoded(t, "testdata/cloud.yaml").pods() {
		for flag, value := range flags(t, template.Spec.Containers[0]) {
			if strings.Contains(flag, "listen") && !strings.Contains(value, "[::]:") {
				t.Errorf("%s has --%s=%s", name, flag, value)
			}
			if name == "berth-agent" && flag == "advertise" && value != "[$(POD_IP)]:7200" {
				t.Errorf("agents advertise %s", value)
			}
		}
	}
}
