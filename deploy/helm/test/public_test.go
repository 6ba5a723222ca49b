package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestValuesOfPublicCharts checks values in the forms that users copy from charts of etcd and
// comparable systems. The chart uses every value of a set, or rejects the set and names what
// it does not know. Each line names the charts that have the form.
func TestValuesOfPublicCharts(t *testing.T) {
	const base = "insecure: true\netcd: {endpoints: ['etcd:2379']}\n"
	for _, c := range []struct {
		charts, values string
		used           []string // parts of the objects that are rendered
		refused        string   // a part of the error
	}{
		{"etcd, postgresql, kafka, redis", "global: {imageRegistry: registry.example.com, imagePullSecrets: [regcred]}",
			[]string{"image: registry.example.com/berth:", "- name: regcred"}, ""},
		{"vault, consul, argo-cd", "global: {imagePullSecrets: [{name: regcred}]}", []string{"- name: regcred"}, ""},
		{"etcd, zookeeper, rabbitmq",
			"image: {registry: docker.io, repository: example/berth, tag: 1.2.3, pullSecrets: [regcred]}",
			[]string{"image: docker.io/example/berth:1.2.3", "- name: regcred"}, ""},
		{"prometheus, grafana", "image: {repository: quay.io/example/berth, tag: v1, digest: '', pullPolicy: Always}",
			[]string{"image: quay.io/example/berth:v1", "imagePullPolicy: Always"}, ""},
		{"grafana", "image: {sha: 9f86d0}", nil, "at '/image': additional properties 'sha' not allowed"},
		{"prometheus, nats", "imagePullSecrets: [{name: regcred}]", nil,
			"additional properties 'imagePullSecrets' not allowed"},
		{"etcd, postgresql", "global: {defaultStorageClass: fast}", nil, "global.defaultStorageClass is not a value"},
		{"etcd, redis", "global: {compatibility: {openshift: {adaptSecurityContext: auto}}}", nil,
			"global.compatibility is not a value"},
		{"vault, consul", "global: {openshift: true}", nil, "global.openshift is not a value"},
		{"prometheus, grafana on OpenShift", "podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}",
			[]string{"runAsNonRoot: true"}, ""},
		{"etcd, zookeeper", "podSecurityContext: {enabled: true, fsGroup: 1001}", nil,
			"at '/podSecurityContext': additional properties 'enabled' not allowed"},
		{"prometheus", "securityContext: {runAsUser: 65534, fsGroup: 65534}", nil,
			"additional properties 'securityContext' not allowed"},
		{"helm create",
			"serviceAccount: {create: true, automount: true, annotations: {eks.amazonaws.com/role-arn: arn}, name: ''}",
			[]string{"kind: ServiceAccount", "serviceAccountName: berth", "eks.amazonaws.com/role-arn: arn",
				"automountServiceAccountToken: true"}, ""},
		{"etcd, postgresql", "serviceAccount: {create: true, automountServiceAccountToken: false}", nil,
			"at '/serviceAccount': additional properties 'automountServiceAccountToken' not allowed"},
		{"ingress-nginx", "gateway: {service: {type: LoadBalancer, loadBalancerClass: service.k8s.aws/nlb, " +
			"loadBalancerSourceRanges: [10.0.0.0/8], externalTrafficPolicy: Local, nodePort: 32080}}",
			[]string{`loadBalancerClass: "service.k8s.aws/nlb"`, `loadBalancerSourceRanges: ["10.0.0.0/8"]`,
				`externalTrafficPolicy: "Local"`, "nodePort: 32080"}, ""},
		{"etcd, zookeeper", "gateway: {service: {type: NodePort, nodePorts: {client: 32379}}}", nil,
			"at '/gateway/service': additional properties 'nodePorts' not allowed"},
		{"kube-prometheus-stack", "gateway: {service: {ipDualStack: {enabled: true}}}", nil,
			"at '/gateway/service': additional properties 'ipDualStack' not allowed"},
		{"vault, consul", "gateway: {service: {ipFamilyPolicy: RequireDualStack, ipFamilies: [IPv4, IPv6]}}",
			[]string{`ipFamilyPolicy: "RequireDualStack"`, `ipFamilies: ["IPv4","IPv6"]`, "--listen=[::]:8080"}, ""},
		{"redis, minio", "service: {type: LoadBalancer}", nil, "additional properties 'service' not allowed"},
		{"etcd, kafka", "replicaCount: 3", nil, "additional properties 'replicaCount' not allowed"},
		{"etcd, postgresql", "persistence: {storageClass: fast}", nil, "additional properties 'persistence' not allowed"},
		{"etcd, redis", "metrics: {enabled: true, serviceMonitor: {enabled: true}}", nil,
			"additional properties 'metrics' not allowed"},
		{"zookeeper, cockroachdb", "scheduling: {nodeSelector: {disk: ssd}, tolerations: [{key: dedicated, " +
			"operator: Equal, value: state, effect: NoSchedule}], priorityClassName: high}",
			[]string{"disk: ssd", "key: dedicated", "priorityClassName: high"}, ""},
		{"cert-manager, argo-cd", "global: {priorityClassName: high}", nil, "global.priorityClassName is not a value"},
		{"nats", "podTemplate: {merge: {spec: {hostNetwork: true}}}", nil, "additional properties 'podTemplate' not allowed"},
		{"argo-cd, grafana", "podLabels: {team: a}\npodAnnotations: {sidecar.istio.io/inject: 'false'}",
			[]string{"team: a", "sidecar.istio.io/inject: \"false\""}, ""},
		{"vault", "registry: {extraEnvironmentVars: {A: b}}", nil,
			"at '/registry': additional properties 'extraEnvironmentVars' not allowed"},
		{"cockroachdb, temporal", "nameOverride: berth\nfullnameOverride: berth", nil, "additional properties"},
	} {
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(base+c.values), &values); err != nil {
			t.Fatalf("%s: %v", c.values, err)
		}
		files, err := render(values)
		switch {
		case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
			t.Errorf("%s: %s\nthe error is %v\nwant %s", c.charts, c.values, err, c.refused)
		case c.refused == "" && err != nil:
			t.Errorf("%s: %s\n%v", c.charts, c.values, err)
		}
		all := strings.Join(slices.Collect(maps.Values(files)), "\n")
		for _, used := range c.used {
			if err == nil && !strings.Contains(all, used) {
				t.Errorf("%s: %s\nno object has %q", c.charts, c.values, used)
			}
		}
	}
}

// TestPartOfAnotherChart checks that Berth accepts the global values of the other parts of a
// chart whose part it is, and uses those that it knows.
func TestPartOfAnotherChart(t *testing.T) {
	files, err := renderPart(map[string]any{
		"global": map[string]any{"postgresql": map[string]any{"auth": "x"}, "imageRegistry": "registry.example.com"},
		"berth":  readValues(t, "testdata/minimal.yaml"),
	})
	if err != nil {
		t.Fatal(err)
	}
	gateway := files["platform/charts/berth/templates/gateway.yaml"]
	if !strings.Contains(gateway, "image: registry.example.com/berth:") {
		t.Errorf("the registry is not used: %s", gateway)
	}
}
