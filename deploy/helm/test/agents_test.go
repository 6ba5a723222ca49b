package chart

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
)

// TestAgentIDs checks that the ID of an executor is the name of its pod if a number of agents
// runs, because several agents may run on one node.
func TestAgentIDs(t *testing.T) {
	for set, want := range map[string]string{
		"testdata/agents.yaml": "$(NODE_NAME)", "testdata/own-certificates.yaml": "$(NODE_NAME)",
		"testdata/issuer.yaml": "$(POD_NAME)", "testdata/statefulset.yaml": "$(POD_NAME)",
		"testdata/replicaset.yaml": "$(POD_NAME)",
	} {
		c := decoded(t, set).pods()["berth-agent"].Spec.Containers[0]
		variable := strings.Trim(want, "$()")
		if flags(t, c)["id"] != want ||
			!slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == variable }) {
			t.Errorf("%s: the ID is %s, the variables are %+v", set, flags(t, c)["id"], c.Env)
		}
	}
}

// TestAgentStatefulSet checks that agents of a StatefulSet keep their identities, that an
// upgrade stops no worker, and that claims take the executors that Kubernetes removes first.
func TestAgentStatefulSet(t *testing.T) {
	r := decoded(t, "testdata/statefulset.yaml")
	set := get[*appsv1.StatefulSet](t, r, "berth-agent")
	if set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType || set.Spec.Replicas != nil ||
		set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement {
		t.Errorf("the StatefulSet is %+v", set.Spec)
	}
	// Claims take the greatest ID, and Kubernetes removes the highest number. The order of
	// the texts is the order of the numbers as long as all have the same length.
	first := int(set.Spec.Ordinals.Start)
	if last := first + 50_000 - 1; len(strconv.Itoa(first)) != len(strconv.Itoa(last)) {
		t.Errorf("the names of the pods %d and %d differ in length", first, last)
	}
	if service := get[*corev1.Service](t, r, set.Spec.ServiceName); service.Spec.ClusterIP != corev1.ClusterIPNone {
		t.Errorf("the service %s is not headless", service.Name)
	}
	claim, keeps := set.Spec.VolumeClaimTemplates[0], set.Spec.PersistentVolumeClaimRetentionPolicy
	storage := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if storage.String() != "20Gi" || *claim.Spec.StorageClassName != "fast" ||
		keeps.WhenScaled != appsv1.DeletePersistentVolumeClaimRetentionPolicyType ||
		keeps.WhenDeleted != appsv1.DeletePersistentVolumeClaimRetentionPolicyType {
		t.Errorf("the volumes are %+v, kept by %+v", claim, keeps)
	}
	c := set.Spec.Template.Spec.Containers[0]
	mount := slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == claim.Name })
	if mount < 0 || !strings.HasPrefix(flags(t, c)["dir"], c.VolumeMounts[mount].MountPath+"/") {
		t.Errorf("the directory %s is not in the volume: %+v", flags(t, c)["dir"], c.VolumeMounts)
	}
	if slices.ContainsFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == claim.Name }) {
		t.Error("another volume has the name of the claim")
	}
}

// TestNumberOfAgents checks that the values set the number of agents, and that no autoscaler
// of nodes evicts agents, whose workers would end.
func TestNumberOfAgents(t *testing.T) {
	values := readValues(t, "testdata/replicaset.yaml")
	r := decodedValues(t, "replicaset", values)
	set := get[*appsv1.ReplicaSet](t, r, "berth-agent")
	if *set.Spec.Replicas != 4 {
		t.Errorf("%d agents", *set.Spec.Replicas)
	}
	if budget := get[*policyv1.PodDisruptionBudget](t, r, "berth-agent"); budget.Spec.MaxUnavailable.IntValue() != 1 {
		t.Errorf("%v agents may be away", budget.Spec.MaxUnavailable)
	}
	kept := map[string]string{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true"}
	if !contains(set.Spec.Template.Annotations, kept) {
		t.Errorf("the annotations are %v", set.Spec.Template.Annotations)
	}
	for name, template := range r.pods() {
		if name != "berth-agent" && len(template.Annotations) > 0 {
			t.Errorf("%s has the annotations %v", name, template.Annotations)
		}
	}
	agent := values["agent"].(map[string]any)
	agent["kind"] = "StatefulSet"
	r = decodedValues(t, "statefulset", values)
	if got := *get[*appsv1.StatefulSet](t, r, "berth-agent").Spec.Replicas; got != 4 {
		t.Errorf("%d agents", got)
	}
	delete(agent, "replicas")
	agent["kind"], agent["keepReplicas"] = "ReplicaSet", true
	if set := get[*appsv1.ReplicaSet](t, decodedValues(t, "kept", values), "berth-agent"); set.Spec.Replicas != nil {
		t.Errorf("an upgrade sets the number to %d", *set.Spec.Replicas)
	}
}
