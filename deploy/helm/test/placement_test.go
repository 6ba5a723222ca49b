package chart

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestPlacement checks that the values of a component that say where its pods run replace
// those of all components, one by one.
func TestPlacement(t *testing.T) {
	pods := decoded(t, "testdata/placement.yaml").pods()
	for name, want := range map[string]struct{ node, toleration, class string }{
		"berth-registry":       {"registry", "registry", "system-cluster-critical"},
		"berth-executor-state": {"control", "control", "control"},
		"berth-assigner":       {"control", "control", "control"},
		"berth-gateway":        {"control", "control", "control"},
		"berth-etcd":           {"control", "control", "control"},
	} {
		spec := pods[name].Spec
		if spec.NodeSelector["role"] != want.node || len(spec.Tolerations) != 1 ||
			spec.Tolerations[0].Key != want.toleration || spec.PriorityClassName != want.class {
			t.Errorf("%s: %v, %v, %s", name, spec.NodeSelector, spec.Tolerations, spec.PriorityClassName)
		}
		if own := name == "berth-executor-state"; (spec.Affinity.PodAntiAffinity != nil) != own ||
			(spec.Affinity.NodeAffinity != nil) == own {
			t.Errorf("%s: %v", name, spec.Affinity)
		}
	}
	spread := pods["berth-gateway"].Spec.TopologySpreadConstraints
	if len(spread) != 1 || spread[0].WhenUnsatisfiable != corev1.ScheduleAnyway ||
		!contains(pods["berth-gateway"].Labels, spread[0].LabelSelector.MatchLabels) ||
		!slices.Equal(spread[0].MatchLabelKeys, []string{"pod-template-hash"}) {
		t.Errorf("gateways are spread by %+v", spread)
	}

	agent := decoded(t, "testdata/statefulset.yaml").pods()["berth-agent"]
	spread = agent.Spec.TopologySpreadConstraints
	if len(spread) != 1 || !contains(agent.Labels, spread[0].LabelSelector.MatchLabels) ||
		agent.Spec.Affinity.PodAntiAffinity == nil || agent.Spec.PriorityClassName != "workers" {
		t.Errorf("agents run by %+v", agent.Spec)
	}
}

// TestExtraVariablesAndVolumes checks that a component has the variables and volumes of its
// values in addition to those of the chart, and no other component has them.
func TestExtraVariablesAndVolumes(t *testing.T) {
	pods := decoded(t, "testdata/placement.yaml").pods()
	for name, template := range pods {
		c := template.Spec.Containers[0]
		variable := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "OTEL_EXPORTER_OTLP_HEADERS" && e.ValueFrom.SecretKeyRef.Key == "headers"
		})
		pod := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "POD_NAME" })
		if is := name == "berth-registry"; variable != is || !pod || len(c.EnvFrom) != 2 && is || len(c.EnvFrom) != 0 && !is {
			t.Errorf("%s has the variables %+v and %+v", name, c.Env, c.EnvFrom)
		}
	}
	v, mount := volumeAt(t, pods["berth-registry"], "/etc/collector")
	if v.Secret.SecretName != "collector-ca" || !mount.ReadOnly {
		t.Errorf("the registry mounts %+v", v)
	}
	if v, _ := volumeAt(t, pods["berth-gateway"], "/etc/issuer"); v.ConfigMap.Name != "issuer-ca" {
		t.Errorf("gateways mount %+v", v)
	}
	agent := decoded(t, "testdata/replicaset.yaml").pods()["berth-agent"]
	if v, _ := volumeAt(t, agent, "/assets"); v.PersistentVolumeClaim.ClaimName != "assets" ||
		len(agent.Spec.Containers[0].EnvFrom) != 1 ||
		agent.Spec.Containers[0].Env[len(agent.Spec.Containers[0].Env)-1].Name != "RENDER_LICENSE" {
		t.Errorf("agents have %+v", agent.Spec)
	}
}

// TestEtcdUser checks that the user of etcd comes from the secret of the password if the
// values do not name one.
func TestEtcdUser(t *testing.T) {
	pods := decoded(t, "testdata/routes.yaml").pods()
	for _, name := range []string{"berth-registry", "berth-executor-state", "berth-assigner", "berth-gateway"} {
		c := pods[name].Spec.Containers[0]
		user := slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == "ETCD_USER" && e.ValueFrom.SecretKeyRef.Name == "etcd-login" &&
				e.ValueFrom.SecretKeyRef.Key == "username"
		})
		if !user || flags(t, c)["etcd-user"] != "$(ETCD_USER)" ||
			flags(t, c)["etcd-password-file"] != "/etc/berth/etcd-password/password" {
			t.Errorf("%s has %v and the variables %+v", name, flags(t, c), c.Env)
		}
	}
	registry := decoded(t, "testdata/tls.yaml").pods()["berth-registry"].Spec.Containers[0]
	if got := flags(t, registry)["etcd-user"]; got != "berth" {
		t.Errorf("the user is %q", got)
	}
}
