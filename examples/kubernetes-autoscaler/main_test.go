package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	berthv1 "berth.dev/api/berth/v1"
	"berth.dev/client"
)

const (
	// patience is the time limit of a test. Only a failure takes this long.
	patience = time.Minute
	// size is the number of agents, sim-0 to sim-7.
	size = 8
)

// start runs `berth dev --tls` with simulated executors of the SKU sim. It returns a client
// of an operator, and a client that has only the role of the autoscaler.
func start(t *testing.T) (operator, scales *client.Client) {
	t.Helper()
	dir := t.TempDir()
	program, access, secret := filepath.Join(dir, "berth"), filepath.Join(dir, "access.yaml"), "0123456789abcdef"
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "berth.dev/cmd/berth")
	build.Dir = "../.." // with the workspace, to which this module does not belong
	build.Env = append(build.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	tokens := fmt.Sprintf("tokens: [{role: autoscaler, name: sim, sha256: %x}]", sha256.Sum256([]byte(secret)))
	if err := os.WriteFile(access, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	dev := exec.Command(program, "dev", "--listen", "127.0.0.1:0", "--executors", strconv.Itoa(size),
		"--log-level", "error", "--tls", "--access", access, "--data-dir", t.TempDir())
	dev.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := dev.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := dev.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(dev.Process.Signal(syscall.SIGTERM), dev.Wait()); err != nil {
			t.Error(err)
		}
	})
	var text strings.Builder
	for part := make([]byte, 4096); !strings.Contains(text.String(), "Press Ctrl-C"); {
		n, err := out.Read(part)
		if text.Write(part[:n]); err != nil {
			t.Fatalf("%v: %s", err, &text)
		}
	}
	for name, option := range map[string]*string{"GATEWAY": gateways, "TLS_CA": ca, "TLS_CERT": cert, "TLS_KEY": key} {
		found := regexp.MustCompile(` BERTH_` + name + `=(?:https://)?(\S+)`).FindStringSubmatch(text.String())
		if found == nil {
			t.Fatalf("no BERTH_%s in %s", name, &text)
		}
		*option = found[1]
	}
	*token = ""
	if operator, err = dial(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { operator.Close() })
	*cert, *token = "", filepath.Join(dir, "token")
	if err := os.WriteFile(*token, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	if scales, err = dial(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scales.Close() })
	return operator, scales
}

// cluster is a fake of the API of Kubernetes, and acts as its controllers.
type cluster struct {
	*testing.T
	ctx      context.Context
	kube     *fake.Clientset
	operator *client.Client
	*scaler
}

func newCluster(t *testing.T) *cluster {
	operator, scales := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	kube := fake.NewClientset()
	c := &cluster{t, ctx, kube, operator, &scaler{kube: kube, berth: scales, namespace: "berth", name: "sim", sku: "sim"}}
	two := int32(2)
	if _, err := operator.PutSKU(ctx, &berthv1.Sku{Name: "sim", Resources: map[string]int64{"slots": 1},
		Scale: &berthv1.ScaleRule{MaxIdle: &two}}); err != nil {
		t.Fatal(err)
	}
	return c
}

var labels = map[string]string{"app": "agent"}

// addPod creates a ready pod of a controller.
func (c *cluster) addPod(name string, owner metav1.Object, kind string) {
	c.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "berth", Labels: labels,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if _, err := c.kube.CoreV1().Pods("berth").Create(c.ctx, pod, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
}

func (c *cluster) list() map[string]*corev1.Pod {
	c.Helper()
	list, err := c.kube.CoreV1().Pods("berth").List(c.ctx, metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pods := map[string]*corev1.Pod{}
	for i := range list.Items {
		pods[list.Items[i].Name] = &list.Items[i]
	}
	return pods
}

// statefulSet acts as the controller of the StatefulSet, and returns the numbers of the pods
// that it removed.
func (c *cluster) statefulSet() (removed string) {
	c.Helper()
	set, err := c.kube.AppsV1().StatefulSets("berth").Get(c.ctx, "sim", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	pods := c.list()
	for i := range int(*set.Spec.Replicas) {
		name := fmt.Sprintf("sim-%d", i)
		if pods[name] == nil {
			c.addPod(name, set, "StatefulSet")
		}
		delete(pods, name)
	}
	return c.remove(slices.Sorted(maps.Keys(pods)))
}

// replicaSet acts as the controller of the ReplicaSet. Its order is that of
// https://kubernetes.io/docs/concepts/workloads/controllers/replicaset/#scaling-down-a-replicaset,
// of which it chooses the newest pod, the one with the greatest name, last.
func (c *cluster) replicaSet() (removed string) {
	c.Helper()
	set, err := c.kube.AppsV1().ReplicaSets("berth").Get(c.ctx, "sim", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	cost := func(pod *corev1.Pod) int {
		n, _ := strconv.Atoi(pod.Annotations[corev1.PodDeletionCost])
		return n
	}
	isReady := func(pod *corev1.Pod) int {
		if ready(pod) {
			return 1
		}
		return 0
	}
	pods := slices.SortedFunc(maps.Values(c.list()), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(isReady(a), isReady(b)), cmp.Compare(cost(a), cost(b)), cmp.Compare(b.Name, a.Name))
	})
	var surplus []string
	for _, pod := range pods[:len(pods)-int(*set.Spec.Replicas)] {
		surplus = append(surplus, pod.Name)
	}
	slices.Sort(surplus)
	return c.remove(surplus)
}

func (c *cluster) remove(names []string) (removed string) {
	c.Helper()
	for _, name := range names {
		// An executor of a removed pod has no workers and gets none.
		e, err := c.operator.Executor(c.ctx, name)
		if err != nil || e.GetWorkers() > 0 || len(e.GetDisabled()) == 0 {
			c.Errorf("pod %s is removed, and its executor is %v: %v", name, e, err)
		}
		if err := c.kube.CoreV1().Pods("berth").Delete(c.ctx, name, metav1.DeleteOptions{}); err != nil {
			c.Fatal(err)
		}
		removed += strings.TrimPrefix(name, "sim-")
	}
	return removed
}

// claimed returns the numbers of the executors that claims keep out of use.
func (c *cluster) claimed() (numbers string) {
	c.Helper()
	for e, err := range c.operator.Executors(c.ctx, &berthv1.ListExecutorsRequest{}) {
		if err != nil {
			c.Fatal(err)
		}
		if len(e.GetDisabled()) > 0 {
			numbers += strings.TrimPrefix(e.GetId(), "sim-")
		}
	}
	return numbers
}

// occupy starts a worker on one executor.
func (c *cluster) occupy(id string) client.Key {
	c.Helper()
	var others []string
	for i := range size {
		if other := fmt.Sprintf("sim-%d", i); other != id {
			others = append(others, other)
		}
	}
	disabled, err := c.operator.Disable(c.ctx,
		&berthv1.DisableExecutorsRequest{Selector: &berthv1.ExecutorSelector{Ids: others}})
	if err != nil {
		c.Fatal(err)
	}
	key := c.reserve("one", 1)
	c.await(key)
	if _, err := c.operator.Enable(c.ctx,
		&berthv1.EnableExecutorsRequest{DisableRequestId: disabled.GetRequestId()}); err != nil {
		c.Fatal(err)
	}
	return key
}

// reserve requests a gang of workers.
func (c *cluster) reserve(stage string, count int32) client.Key {
	c.Helper()
	key := client.Key{Job: "train", Stage: stage}
	gang := &berthv1.Reservation{Job: key.Job, Stage: key.Stage, Count: count}
	if _, err := c.operator.Reserve(c.ctx, gang); err != nil {
		c.Fatal(err)
	}
	return key
}

// await waits until a gang has executors.
func (c *cluster) await(key client.Key) {
	c.Helper()
	if _, err := c.operator.WaitFor(c.ctx, key, berthv1.Reservation_ACTIVE); err != nil {
		c.Fatal(err)
	}
}

// until repeats a step until it makes a condition true.
func (c *cluster) until(step func(context.Context) error, done func() bool) {
	c.Helper()
	for !done() {
		if err := step(c.ctx); c.ctx.Err() != nil {
			c.Fatal(err)
		}
	}
}

func (c *cluster) expect(what, got, want string) {
	c.Helper()
	if got != want {
		c.Errorf("%s: %q, want %q", what, got, want)
	}
}

// failOnce lets the nth call of a kind fail with an error.
func (c *cluster) failOnce(verb, resource string, n int, err error) {
	c.kube.PrependReactor(verb, resource, func(kubetesting.Action) (bool, runtime.Object, error) {
		n--
		return n == 0, nil, err
	})
}

// TestStatefulSet checks that the StatefulSet loses exactly the claimed executors.
func TestStatefulSet(t *testing.T) {
	c := newCluster(t)
	n := int32(size)
	sets := c.kube.AppsV1().StatefulSets("berth")
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "berth", UID: "1"},
		Spec: appsv1.StatefulSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	if _, err := sets.Create(c.ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.statefulSet()
	replicas := func() int {
		set, err := sets.Get(c.ctx, "sim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return int(*set.Spec.Replicas)
	}

	// If an executor gets a worker between the list and the claim, the claim has a hole. The
	// autoscaler undoes it and claims only the executors above.
	worker := c.occupy("sim-5")
	var hosts []string
	for i := range size {
		hosts = append(hosts, fmt.Sprintf("sim-%d", i))
	}
	claim, err := c.claimHighest(c.ctx, hosts, 5)
	if err != nil || len(claim.GetExecutors()) != 2 {
		t.Fatal(claim, err)
	}
	c.expect("claimed", c.claimed(), "67")
	if err := c.undo(c.ctx, claim.GetRequestId()); err != nil {
		t.Fatal(err)
	}
	if claim, err := c.claimHighest(c.ctx, hosts[:6], 5); err != nil || claim != nil {
		t.Errorf("claimed %v below a busy executor: %v", claim, err)
	}
	c.expect("claimed", c.claimed(), "")

	// After a conflict nothing has changed, and the next step removes the agents.
	c.failOnce("update", "statefulsets", 1, apierrors.NewConflict(schema.GroupResource{}, "sim", nil))
	conflict := error(nil)
	c.until(func(ctx context.Context) error { conflict = c.stepStatefulSet(ctx); return conflict },
		func() bool { return apierrors.IsConflict(conflict) })
	c.expect("claimed after a conflict", c.claimed(), "")
	c.expect("removed after a conflict", c.statefulSet(), "")
	c.until(c.stepStatefulSet, func() bool { return replicas() != size })
	c.expect("claimed", c.claimed(), "67")

	// New agents with the names of removed ones wait for the end of the old pods.
	grow, err := sets.Get(c.ctx, "sim", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.growStatefulSet(c.ctx, grow, 6, 1)
	if err == nil || !strings.Contains(err.Error(), "waiting for the end of pod sim-") {
		t.Errorf("grows over old pods: %v", err)
	}
	c.expect("removed", c.statefulSet(), "67")

	// The busy executor is the highest now, so nothing more is removed.
	if err := c.stepStatefulSet(c.ctx); err != nil || replicas() != 6 {
		t.Errorf("%d replicas: %v", replicas(), err)
	}
	c.expect("claimed", c.claimed(), "67")

	// The result of an update is unknown: the claim stays, and the next steps remove nothing
	// else.
	if _, err := c.operator.Cancel(c.ctx, worker); err != nil {
		t.Fatal(err)
	}
	timeout := apierrors.NewTimeoutError("unknown", 1)
	c.failOnce("update", "statefulsets", 1, timeout)
	var unknown error
	c.until(func(ctx context.Context) error { unknown = c.stepStatefulSet(ctx); return unknown },
		func() bool { return apierrors.IsTimeout(unknown) })
	held := c.claimed()
	if err := c.stepStatefulSet(c.ctx); err != nil || replicas() != 6 || held == "67" {
		t.Errorf("%d replicas, the executors %s are claimed: %v", replicas(), held, err)
	}
	c.expect("claimed", c.claimed(), held)
	all := &berthv1.ExecutorSelector{Ids: hosts[:6]}
	if _, err := c.operator.Enable(c.ctx, &berthv1.EnableExecutorsRequest{Selector: all}); err != nil {
		t.Fatal(err)
	}

	// A gang needs all eight executors. The new agents are usable at once.
	gang := c.reserve("all", size)
	c.until(c.stepStatefulSet, func() bool { return replicas() == size })
	c.expect("removed", c.statefulSet(), "")
	c.await(gang)
	c.expect("claimed", c.claimed(), "")
}

// TestReplicaSet checks that the ReplicaSet loses exactly the claimed executors.
func TestReplicaSet(t *testing.T) {
	c := newCluster(t)
	n := int32(size)
	sets := c.kube.AppsV1().ReplicaSets("berth")
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "sim", Namespace: "berth", UID: "1"},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels}}}
	if _, err := sets.Create(c.ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range size {
		c.addPod(fmt.Sprintf("sim-%d", i), set, "ReplicaSet")
	}
	replicas := func() int {
		set, err := sets.Get(c.ctx, "sim", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return int(*set.Spec.Replicas)
	}
	costs := func() (numbers string) {
		for _, name := range slices.Sorted(maps.Keys(c.list())) {
			if c.list()[name].Annotations[corev1.PodDeletionCost] != "" {
				numbers += strings.TrimPrefix(name, "sim-")
			}
		}
		return numbers
	}
	c.occupy("sim-7")

	// Kubernetes would remove a pod that is not ready first, so nothing is claimed.
	pod := c.list()["sim-0"]
	setReady := func(status corev1.ConditionStatus) {
		pod.Status.Conditions[0].Status = status
		if _, err := c.kube.CoreV1().Pods("berth").UpdateStatus(c.ctx, pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	setReady(corev1.ConditionFalse)
	var waits error
	c.until(func(ctx context.Context) error { waits = c.stepReplicaSet(ctx); return waits },
		func() bool { return waits != nil })
	if !strings.Contains(waits.Error(), "waiting until pod sim-0 is ready") {
		t.Error(waits)
	}
	c.expect("claimed", c.claimed(), "")
	setReady(corev1.ConditionTrue)

	// An error after the first cost undoes the claim. The next step begins anew, and
	// removes neither the pod with the old cost nor the one with a worker.
	broken := errors.New("broken")
	c.failOnce("patch", "pods", 2, broken)
	var failed error
	c.until(func(ctx context.Context) error { failed = c.stepReplicaSet(ctx); return failed },
		func() bool { return errors.Is(failed, broken) })
	c.expect("claimed after an error", c.claimed(), "")
	c.expect("removed after an error", c.replicaSet(), "")
	if len(costs()) != 1 {
		t.Errorf("the pods %s have costs", costs())
	}
	lowest := int32(-1 << 31)
	if err := c.setCost(c.ctx, "sim-7", &lowest); err != nil { // of an earlier removal
		t.Fatal(err)
	}
	c.until(c.stepReplicaSet, func() bool { return replicas() != size })
	want := c.claimed()
	c.expect("pods with costs", costs(), want)
	c.expect("claimed", want, "23456")
	c.expect("removed", c.replicaSet(), want)

	// The step after it waits for nothing and changes nothing.
	if err := c.stepReplicaSet(c.ctx); err != nil || replicas() != 3 {
		t.Errorf("%d replicas: %v", replicas(), err)
	}
}

// TestDocumentedBuild executes the build command of docs/how-to/autoscale.md in the
// environment of a reader, to whom the workspace of the repository applies.
func TestDocumentedBuild(t *testing.T) {
	guide, err := os.ReadFile("../../docs/how-to/autoscale.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile(`(?m)^cd examples/kubernetes-autoscaler\n.*go build$`).Find(guide)
	if command == nil {
		t.Fatal("the guide has no build command")
	}
	build := exec.CommandContext(t.Context(), "sh", "-ec", string(command)+" -o "+filepath.Join(t.TempDir(), "program"))
	build.Dir = "../.."
	build.Env = append(build.Environ(), "GOWORK=")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}
