package chart

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDir  = "../berth"
	namespace = "cells"
)

// valueSets returns the files of values for test releases.
func valueSets(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(names) < 5 {
		t.Fatalf("only %d value sets: %v", len(names), err)
	}
	return names
}

func readValues(t *testing.T, name string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return values
}

// loaded is the chart, read once.
var loaded = sync.OnceValues(func() (*chartv2.Chart, error) { return loader.Load(chartDir) })

// render renders the chart for a release named berth.
func render(values map[string]any) (map[string]string, error) {
	chart, err := loaded()
	if err != nil {
		return nil, err
	}
	return renderChart(chart, values)
}

// renderPart renders a chart that has only one part, Berth.
func renderPart(values map[string]any) (map[string]string, error) {
	part, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	whole := &chartv2.Chart{Metadata: &chartv2.Metadata{Name: "platform", Version: "1.0.0", APIVersion: "v2"}}
	whole.SetDependencies(part)
	return renderChart(whole, values)
}

func renderChart(chart *chartv2.Chart, values map[string]any) (map[string]string, error) {
	version, err := common.ParseKubeVersion("v1.33.0")
	if err != nil {
		return nil, err
	}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	all, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "berth", Namespace: namespace, Revision: 1,
		IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// podMonitor has the fields of the Prometheus operator's kind that the chart uses.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodTargetLabels     []string             `json:"podTargetLabels"`
		PodMetricsEndpoints []metricsEndpoint    `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

type metricsEndpoint struct {
	Port, Path, Interval, Scheme string
	TLSConfig                    *struct {
		ServerName string                    `json:"serverName"`
		CA, Cert   secretReference           `json:",omitempty"`
		KeySecret  *corev1.SecretKeySelector `json:"keySecret"`
	} `json:"tlsConfig"`
	Authorization *struct {
		Credentials *corev1.SecretKeySelector `json:"credentials"`
	} `json:"authorization"`
}

type secretReference struct {
	Secret *corev1.SecretKeySelector `json:"secret"`
}

// prometheusRule is the Prometheus operator's kind. Its groups are those of a rule file.
type prometheusRule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              ruleFile `json:"spec"`
}

type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert, Expr, For    string
			Labels, Annotations map[string]string
		} `json:"rules"`
	} `json:"groups"`
}

// certificate and issuer have the fields of cert-manager's kinds that the chart uses.
type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretName  string          `json:"secretName"`
		CommonName  string          `json:"commonName"`
		IsCA        bool            `json:"isCA"`
		URIs        []string        `json:"uris"`
		DNSNames    []string        `json:"dnsNames"`
		Usages      []string        `json:"usages"`
		Duration    metav1.Duration `json:"duration"`
		RenewBefore metav1.Duration `json:"renewBefore"`
		PrivateKey  struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef issuerReference `json:"issuerRef"`
	} `json:"spec"`
}

type issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SelfSigned *struct{} `json:"selfSigned"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca"`
	} `json:"spec"`
}

type issuerReference struct{ Name, Kind, Group string }

// documented returns an empty object of a kind that only guides have.
func documented(apiVersion, kind string) metav1.Object {
	switch apiVersion + " " + kind {
	case "v1 Namespace":
		return &corev1.Namespace{}
	case "rbac.authorization.k8s.io/v1 Role":
		return &rbacv1.Role{}
	case "rbac.authorization.k8s.io/v1 RoleBinding":
		return &rbacv1.RoleBinding{}
	}
	return object(apiVersion, kind)
}

// object returns an empty object of a kind, or nil for a kind that the chart must not have.
func object(apiVersion, kind string) metav1.Object {
	switch apiVersion + " " + kind {
	case "v1 Service":
		return &corev1.Service{}
	case "apps/v1 StatefulSet":
		return &appsv1.StatefulSet{}
	case "apps/v1 Deployment":
		return &appsv1.Deployment{}
	case "apps/v1 DaemonSet":
		return &appsv1.DaemonSet{}
	case "apps/v1 ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "autoscaling/v2 HorizontalPodAutoscaler":
		return &autoscalingv2.HorizontalPodAutoscaler{}
	case "policy/v1 PodDisruptionBudget":
		return &policyv1.PodDisruptionBudget{}
	case "networking.k8s.io/v1 NetworkPolicy":
		return &networkingv1.NetworkPolicy{}
	case "networking.k8s.io/v1 Ingress":
		return &networkingv1.Ingress{}
	case "gateway.networking.k8s.io/v1 HTTPRoute":
		return &gatewayv1.HTTPRoute{}
	case "gateway.networking.k8s.io/v1 GRPCRoute":
		return &gatewayv1.GRPCRoute{}
	case "gateway.networking.k8s.io/v1 TLSRoute":
		return &gatewayv1.TLSRoute{}
	case "gateway.networking.k8s.io/v1 BackendTLSPolicy":
		return &gatewayv1.BackendTLSPolicy{}
	case "v1 Secret":
		return &corev1.Secret{}
	case "v1 ServiceAccount":
		return &corev1.ServiceAccount{}
	case "v1 ConfigMap":
		return &corev1.ConfigMap{}
	case "cert-manager.io/v1 Certificate":
		return &certificate{}
	case "cert-manager.io/v1 Issuer":
		return &issuer{}
	case "monitoring.coreos.com/v1 PodMonitor":
		return &podMonitor{}
	case "monitoring.coreos.com/v1 PrometheusRule":
		return &prometheusRule{}
	}
	return nil
}

// release is a rendered value set. Its objects are decoded strictly.
type release struct {
	set     string // the name of the value set
	values  map[string]any
	objects []metav1.Object
	notes   string
}

func decoded(t *testing.T, valueSet string) *release {
	t.Helper()
	return decodedValues(t, valueSet, readValues(t, valueSet))
}

func decodedValues(t *testing.T, called string, values map[string]any) *release {
	t.Helper()
	r := &release{set: called, values: values}
	files, err := render(values)
	if err != nil {
		t.Fatalf("%s: %v", called, err)
	}
	for name, text := range files {
		if path.Base(name) == "NOTES.txt" {
			r.notes = text
			continue
		}
		for _, document := range strings.Split(text, "\n---\n") {
			var meta metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if meta.Kind == "" {
				continue // the document has only comments
			}
			o := object(meta.APIVersion, meta.Kind)
			if o == nil {
				t.Fatalf("%s: %s %s is an unexpected kind", name, meta.APIVersion, meta.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(document), o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			r.objects = append(r.objects, o)
		}
	}
	return r
}

// get returns the object with a type and a name. The test fails if there is none.
func get[T metav1.Object](t *testing.T, r *release, name string) T {
	t.Helper()
	o, ok := find[T](r, name)
	if !ok {
		t.Fatalf("there is no %T %s", o, name)
	}
	return o
}

func find[T metav1.Object](r *release, name string) (T, bool) {
	for _, o := range r.objects {
		if is, ok := o.(T); ok && o.GetName() == name {
			return is, true
		}
	}
	var none T
	return none, false
}

// pods returns the templates of all pods, by the name of their controller.
func (r *release) pods() map[string]corev1.PodTemplateSpec {
	all := map[string]corev1.PodTemplateSpec{}
	for _, o := range r.objects {
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			all[o.Name] = o.Spec.Template
		case *appsv1.Deployment:
			all[o.Name] = o.Spec.Template
		case *appsv1.DaemonSet:
			all[o.Name] = o.Spec.Template
		case *appsv1.ReplicaSet:
			all[o.Name] = o.Spec.Template
		}
	}
	return all
}

// flags returns the values of a container's flags by name; a flag without a value is "true".
func flags(t *testing.T, c corev1.Container) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, arg := range c.Args {
		name, value, has := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if !strings.HasPrefix(arg, "--") {
			continue // the name of the process
		}
		if !has {
			value = "true"
		}
		if _, twice := all[name]; twice {
			t.Errorf("%s has --%s twice", c.Name, name)
		}
		all[name] = value
	}
	return all
}

func TestLint(t *testing.T) {
	for _, name := range append(valueSets(t), chartDir+"/values.yaml") {
		for _, m := range lint.RunAll(chartDir, readValues(t, name), namespace).Messages {
			// The chart has no icon on purpose.
			if !strings.Contains(m.Error(), "icon is recommended") {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
}

// TestObjects checks that every object is valid for Kubernetes, has no unknown field, and
// has the namespace and the name prefix of the release.
func TestObjects(t *testing.T) {
	for _, name := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			r := decoded(t, name)
			if len(r.objects) < 8 {
				t.Errorf("only %d objects", len(r.objects))
			}
			seen := map[string]bool{}
			for _, o := range r.objects {
				id := fmt.Sprintf("%T %s", o, o.GetName())
				if seen[id] {
					t.Errorf("%s is not unique", id)
				}
				seen[id] = true
				if o.GetName() != "berth" && !strings.HasPrefix(o.GetName(), "berth-") {
					t.Errorf("%s is not named after the release", id)
				}
				if o.GetNamespace() != "" {
					t.Errorf("%s has a namespace of its own", id)
				}
			}
			if !strings.Contains(r.notes, "berth-gateway."+namespace+".svc.cluster.local:8080") {
				t.Errorf("the notes do not name the address for callers:\n%s", r.notes)
			}
			if !strings.Contains(r.notes, "berth-gateway-agents."+namespace+".svc.cluster.local:8081") {
				t.Errorf("the notes do not name the address for agents:\n%s", r.notes)
			}
		})
	}
}

// TestSelectors checks that every selector matches its pods, which the schema of
// Kubernetes cannot check.
func TestSelectors(t *testing.T) {
	for _, name := range valueSets(t) {
		r := decoded(t, name)
		pods := r.pods()
		check := func(o metav1.Object, selector map[string]string, suffixes ...string) {
			t.Helper()
			var selected []string
			for pod, template := range pods {
				if contains(template.Labels, selector) {
					selected = append(selected, pod)
				}
			}
			of := o.GetName()
			for _, suffix := range suffixes {
				of = strings.TrimSuffix(of, suffix)
			}
			if !slices.Equal(selected, []string{of}) {
				t.Errorf("%s: %T %s selects the pods of %v", name, o, o.GetName(), selected)
			}
		}
		for _, o := range r.objects {
			switch o := o.(type) {
			case *corev1.Service:
				check(o, o.Spec.Selector, "-agents", "-internal") // the other Services of the gateways
			case *policyv1.PodDisruptionBudget:
				check(o, o.Spec.Selector.MatchLabels)
			case *networkingv1.NetworkPolicy:
				check(o, o.Spec.PodSelector.MatchLabels)
			case *appsv1.StatefulSet:
				check(o, o.Spec.Selector.MatchLabels)
			case *appsv1.Deployment:
				check(o, o.Spec.Selector.MatchLabels)
			case *appsv1.DaemonSet:
				check(o, o.Spec.Selector.MatchLabels)
			case *appsv1.ReplicaSet:
				check(o, o.Spec.Selector.MatchLabels)
			}
		}
	}
}

func contains(all, some map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}
