package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
	"berth.dev/examples/autoscaler"
)

const (
	// claimed is how long a claim keeps executors out of use. If the autoscaler stops before
	// Kubernetes removes the pods, Berth uses the executors again after this time.
	claimed = 10 * time.Minute
	// maxClaim is the maximum number of executors in a claim.
	maxClaim = 1000
	// claimsKey is the annotation of a StatefulSet with the claims for removed pods. Pods
	// that are added later have the same names, so these claims must end first.
	claimsKey = "berth.dev/claims"
	// maxClaims is the maximum number of claims in the annotation. Older claims have expired
	// if steps are at least ten seconds apart.
	maxClaims = int(claimed / (10 * time.Second))
)

// scaler changes the number of replicas of one StatefulSet or ReplicaSet by the advice for
// one SKU.
type scaler struct {
	kube            kubernetes.Interface
	berth           *client.Client
	namespace, name string
	sku             string
}

// stepStatefulSet compares the advice with a StatefulSet once and acts on the difference.
// Kubernetes removes the pods with the highest numbers, so it claims these.
func (s *scaler) stepStatefulSet(ctx context.Context) error {
	sets := s.kube.AppsV1().StatefulSets(s.namespace)
	set, err := sets.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	replicas, start := *set.Spec.Replicas, int32(0)
	if set.Spec.Ordinals != nil {
		start = set.Spec.Ordinals.Start
	}
	var hosts []string // the pods that should exist, in the order of their numbers
	for i := range replicas {
		hosts = append(hosts, fmt.Sprintf("%s-%d", s.name, start+i))
	}
	missing, executors, err := autoscaler.Missing(ctx, s.berth, s.sku, hosts)
	switch {
	case err != nil:
		return err
	case missing > 0:
		return s.growStatefulSet(ctx, set, start+replicas, int32(missing))
	case missing == 0:
		return nil
	}
	idle := 0 // the number of highest executors that a claim may return
	for i := len(hosts) - 1; i >= 0 && mayBeIdle(executors[hosts[i]]); i-- {
		idle++
	}
	claim, err := s.claimHighest(ctx, hosts, min(-missing, idle, maxClaim))
	if err != nil || claim == nil {
		return err
	}
	*set.Spec.Replicas = replicas - int32(len(claim.GetExecutors()))
	claims := append(strings.Fields(set.Annotations[claimsKey]), claim.GetRequestId())
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, claimsKey, strings.Join(claims[max(0, len(claims)-maxClaims):], " "))
	_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
	return s.updated(ctx, claim, err)
}

// mayBeIdle reports whether a claim could return an executor when the list was read.
func mayBeIdle(e *berthv1.Executor) bool {
	return e.GetState() == berthv1.Executor_READY && e.GetWorkers() == 0 && len(e.GetDisabled()) == 0
}

// claimHighest claims up to n executors and returns the claim if they are exactly the last
// of hosts. A claim takes the greatest IDs first, so it has other executors only if one of
// the last ones got a worker meanwhile. Then claimHighest undoes the claim and claims only
// the executors above it. It returns nil if it claims none.
func (s *scaler) claimHighest(ctx context.Context, hosts []string, n int) (*berthv1.ClaimForScaleDownAnswer, error) {
	for n > 0 {
		claim, err := s.claim(ctx, n)
		if err != nil {
			return nil, err
		}
		ids := idsOf(claim)
		highest := 0
		for highest < len(hosts) && ids[hosts[len(hosts)-1-highest]] {
			highest++
		}
		if highest > 0 && highest == len(ids) {
			return claim, nil
		}
		if err := s.undo(ctx, claim.GetRequestId()); err != nil {
			return nil, err
		}
		n = highest
	}
	return nil, nil
}

// growStatefulSet adds pods. It waits until the pods of an earlier removal have ended, and
// undoes the claims of their executors, whose IDs the new pods have again.
func (s *scaler) growStatefulSet(ctx context.Context, set *appsv1.StatefulSet, end, n int32) error {
	pods, err := s.pods(ctx, set, set.Spec.Selector)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		number, err := strconv.Atoi(pod.Name[strings.LastIndex(pod.Name, "-")+1:])
		if err != nil || number >= int(end) {
			return fmt.Errorf("waiting for the end of pod %s", pod.Name)
		}
	}
	for _, claim := range strings.Fields(set.Annotations[claimsKey]) {
		if err := s.undo(ctx, claim); err != nil {
			return err
		}
	}
	delete(set.Annotations, claimsKey)
	*set.Spec.Replicas += n
	_, err = s.kube.AppsV1().StatefulSets(s.namespace).Update(ctx, set, metav1.UpdateOptions{})
	return err
}

// stepReplicaSet compares the advice with a ReplicaSet once and acts on the difference.
// Kubernetes removes pods that are not ready first, and then those with the lowest
// deletion cost. So a removal requires that all pods are ready, and only the pods of
// claimed executors have a lower cost.
func (s *scaler) stepReplicaSet(ctx context.Context) error {
	sets := s.kube.AppsV1().ReplicaSets(s.namespace)
	set, err := sets.Get(ctx, s.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	all, err := s.pods(ctx, set, set.Spec.Selector)
	if err != nil {
		return err
	}
	pods := map[string]*corev1.Pod{}
	var hosts []string
	for i, pod := range all {
		ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
		if pod.DeletionTimestamp == nil && !ended {
			pods[pod.Name] = &all[i]
			hosts = append(hosts, pod.Name)
		}
	}
	if len(hosts) != int(*set.Spec.Replicas) {
		return fmt.Errorf("waiting until replicaset %s has %d pods, it has %d", s.name, *set.Spec.Replicas, len(hosts))
	}
	missing, executors, err := autoscaler.Missing(ctx, s.berth, s.sku, hosts)
	if err != nil {
		return err
	}
	// A removal that did not happen may have left costs. A disabled executor keeps its cost,
	// because the claim may be in use by a removal whose result is unknown.
	for _, pod := range pods {
		if pod.Annotations[corev1.PodDeletionCost] != "" && len(executors[pod.Name].GetDisabled()) == 0 {
			if err := s.setCost(ctx, pod.Name, nil); err != nil {
				return err
			}
		}
	}
	if missing >= 0 {
		if missing == 0 {
			return nil
		}
		*set.Spec.Replicas += int32(missing)
		_, err := sets.Update(ctx, set, metav1.UpdateOptions{})
		return err
	}
	for _, pod := range pods {
		if !ready(pod) {
			return fmt.Errorf("waiting until pod %s is ready: Kubernetes would remove it first", pod.Name)
		}
	}
	claim, err := s.claim(ctx, min(-missing, maxClaim))
	if err != nil || len(claim.GetExecutors()) == 0 {
		return err
	}
	lowest := int32(math.MinInt32)
	for id := range idsOf(claim) {
		err := fmt.Errorf("executor %s of SKU %s is not a pod of replicaset %s", id, s.sku, s.name)
		if pods[id] != nil {
			err = s.setCost(ctx, id, &lowest)
		}
		if err != nil {
			return errors.Join(err, s.undo(ctx, claim.GetRequestId())) // the next step resets the costs
		}
	}
	*set.Spec.Replicas -= int32(len(claim.GetExecutors()))
	_, err = sets.Update(ctx, set, metav1.UpdateOptions{})
	return s.updated(ctx, claim, err)
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// setCost sets or deletes the deletion cost of a pod.
func (s *scaler) setCost(ctx context.Context, pod string, cost *int32) error {
	var text *string
	if cost != nil {
		decimal := strconv.Itoa(int(*cost))
		text = &decimal
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{corev1.PodDeletionCost: text}},
	})
	if err != nil {
		return err
	}
	_, err = s.kube.CoreV1().Pods(s.namespace).Patch(ctx, pod, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// pods returns the pods of a StatefulSet or ReplicaSet.
func (s *scaler) pods(ctx context.Context, owner metav1.Object, selector *metav1.LabelSelector) ([]corev1.Pod, error) {
	list, err := s.kube.CoreV1().Pods(s.namespace).List(ctx,
		metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(selector)})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !metav1.IsControlledBy(&pod, owner) }), nil
}

// claim claims up to n idle executors of the SKU.
func (s *scaler) claim(ctx context.Context, n int) (*berthv1.ClaimForScaleDownAnswer, error) {
	return s.berth.ClaimForScaleDown(ctx, &berthv1.ClaimForScaleDownRequest{
		Sku: s.sku, Max: int32(n), ExpireTime: timestamppb.New(time.Now().Add(claimed)),
	})
}

func idsOf(claim *berthv1.ClaimForScaleDownAnswer) map[string]bool {
	ids := map[string]bool{}
	for _, e := range claim.GetExecutors() {
		ids[e.GetId()] = true
	}
	return ids
}

func (s *scaler) undo(ctx context.Context, claim string) error {
	_, err := s.berth.Enable(ctx, &berthv1.EnableExecutorsRequest{DisableRequestId: claim})
	return err
}

// updated handles the result of an update that removes claimed executors. After a conflict
// nothing has changed, so it undoes the claim. After any other error the update may have
// happened, so the claim stays until it expires.
func (s *scaler) updated(ctx context.Context, claim *berthv1.ClaimForScaleDownAnswer, err error) error {
	if apierrors.IsConflict(err) {
		return errors.Join(err, s.undo(ctx, claim.GetRequestId()))
	}
	return err
}
