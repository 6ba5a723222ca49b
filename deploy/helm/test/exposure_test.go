package chart

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestRoutes checks that every route leads to the public port of the gateways, and that
// the certificate and --public-names have each of its host names. The Gateway verifies the
// gateways by a name in their certificate.
func TestRoutes(t *testing.T) {
	r := decoded(t, "testdata/routes.yaml")
	leads := func(refs gatewayv1.BackendRef) {
		t.Helper()
		checkBackend(t, r, string(refs.Name), int32(*refs.Port))
	}
	rest := get[*gatewayv1.HTTPRoute](t, r, "berth-gateway")
	leads(rest.Spec.Rules[0].BackendRefs[0].BackendRef)
	calls := get[*gatewayv1.GRPCRoute](t, r, "berth-gateway")
	leads(calls.Spec.Rules[0].BackendRefs[0].BackendRef)
	checkHosts(t, r, rest.Spec.Hostnames, "berth.example.com")
	checkHosts(t, r, calls.Spec.Hostnames, "grpc.berth.example.com")
	for _, parents := range [][]gatewayv1.ParentReference{rest.Spec.ParentRefs, calls.Spec.ParentRefs} {
		if len(parents) != 1 || parents[0].Name != "public" || *parents[0].Namespace != "ingress" ||
			*parents[0].SectionName != "https" {
			t.Errorf("the parents are %+v", parents)
		}
	}
	if rest.Annotations["example.com/owner"] != "platform" {
		t.Errorf("the annotations are %v", rest.Annotations)
	}
	policy := get[*gatewayv1.BackendTLSPolicy](t, r, "berth-gateway").Spec
	if to := policy.TargetRefs[0]; to.Kind != "Service" || to.Name != "berth-gateway" || *to.SectionName != "calls" ||
		policy.Validation.CACertificateRefs[0].Kind != "ConfigMap" ||
		policy.Validation.CACertificateRefs[0].Name != "berth-authority" {
		t.Errorf("the Gateway verifies %+v", policy)
	}
	served, _ := r.certificateIn("berth-gateway-tls")
	if !slices.Contains(served.Spec.DNSNames, string(policy.Validation.Hostname)) {
		t.Errorf("the certificate for %v does not have %s", served.Spec.DNSNames, policy.Validation.Hostname)
	}

	r = decoded(t, "testdata/passthrough.yaml")
	through := get[*gatewayv1.TLSRoute](t, r, "berth-gateway")
	leads(through.Spec.Rules[0].BackendRefs[0])
	checkHosts(t, r, through.Spec.Hostnames, "tls.berth.example.com")
	if _, has := find[*gatewayv1.BackendTLSPolicy](r, "berth-gateway"); has {
		t.Error("a passed connection has two kinds of TLS")
	}
}

// TestIngress checks that an Ingress leads to the public port, and ends TLS only if it has a
// certificate.
func TestIngress(t *testing.T) {
	for set, secret := range map[string]string{"testdata/passthrough.yaml": "", "testdata/ingress.yaml": "berth-public"} {
		r := decoded(t, set)
		in := get[*networkingv1.Ingress](t, r, "berth-gateway")
		rule := in.Spec.Rules[0]
		to := rule.HTTP.Paths[0]
		if to.Path != "/" || *to.PathType != networkingv1.PathTypePrefix || to.Backend.Service.Port.Name != "calls" {
			t.Errorf("%s: %+v", set, to)
		}
		service := get[*corev1.Service](t, r, to.Backend.Service.Name)
		checkBackend(t, r, service.Name, service.Spec.Ports[0].Port)
		checkHosts(t, r, []gatewayv1.Hostname{gatewayv1.Hostname(rule.Host)}, "berth.example.com")
		if len(in.Spec.TLS) != 1 || in.Spec.TLS[0].SecretName != secret || in.Spec.TLS[0].Hosts[0] != rule.Host {
			t.Errorf("%s: TLS %+v", set, in.Spec.TLS)
		}
		if passes := in.Annotations["nginx.ingress.kubernetes.io/ssl-passthrough"] == "true"; passes != (secret == "") {
			t.Errorf("%s: the annotations are %v", set, in.Annotations)
		}
	}
}

func checkBackend(t *testing.T, r *release, service string, port int32) {
	t.Helper()
	ports := get[*corev1.Service](t, r, service).Spec.Ports
	if service != "berth-gateway" || len(ports) != 1 || ports[0].Port != port {
		t.Errorf("the route leads to %s:%d", service, port)
	}
}

// checkHosts checks the host names of a route, and that the certificate has them.
// TestPublicNames checks that --public-names has them too.
func checkHosts[S ~string](t *testing.T, r *release, hosts []S, want string) {
	t.Helper()
	if len(hosts) != 1 || string(hosts[0]) != want {
		t.Errorf("the host names are %v, want %s", hosts, want)
	}
	issued, encrypted := r.certificateIn("berth-gateway-tls")
	if encrypted && !slices.Contains(issued.Spec.DNSNames, want) {
		t.Errorf("the certificate has the names %v, not %s", issued.Spec.DNSNames, want)
	}
}

// TestBasePath checks that the Ingress and the HTTPRoute lead only the base path of the gateways
// to them. A GRPCRoute has no paths.
func TestBasePath(t *testing.T) {
	for set, changes := range map[string]func(r *release) (string, gatewayv1.PathMatchType){
		"testdata/ingress.yaml": func(r *release) (string, gatewayv1.PathMatchType) {
			path := get[*networkingv1.Ingress](t, r, "berth-gateway").Spec.Rules[0].HTTP.Paths[0]
			return path.Path, gatewayv1.PathMatchType("Path" + string(*path.PathType))
		},
		"testdata/routes.yaml": func(r *release) (string, gatewayv1.PathMatchType) {
			if m := get[*gatewayv1.GRPCRoute](t, r, "berth-gateway").Spec.Rules[0].Matches; m != nil {
				t.Errorf("the GRPCRoute matches %v", m)
			}
			path := get[*gatewayv1.HTTPRoute](t, r, "berth-gateway").Spec.Rules[0].Matches[0].Path
			return *path.Value, *path.Type
		},
	} {
		for _, base := range []string{"/berth", "/berth/"} {
			values := readValues(t, set)
			values["gateway"].(map[string]any)["options"] = map[string]any{"base-path": base}
			r := decodedValues(t, set, values)
			if path, kind := changes(r); path != "/berth" || kind != gatewayv1.PathMatchPathPrefix {
				t.Errorf("%s: the path is %s, %s", set, path, kind)
			}
			if got := flags(t, r.pods()["berth-gateway"].Spec.Containers[0])["base-path"]; got != base {
				t.Errorf("%s: the gateways have the path %q", set, got)
			}
		}
	}
}

// TestGatewayAutoscaling checks that the autoscaler alone sets the number of gateways.
func TestGatewayAutoscaling(t *testing.T) {
	r := decoded(t, "testdata/routes.yaml")
	deployment := get[*appsv1.Deployment](t, r, "berth-gateway")
	scaler := get[*autoscalingv2.HorizontalPodAutoscaler](t, r, "berth-gateway").Spec
	if to := scaler.ScaleTargetRef; deployment.Spec.Replicas != nil || to.Kind != "Deployment" ||
		to.Name != deployment.Name || to.APIVersion != "apps/v1" {
		t.Errorf("%d replicas, and the autoscaler changes %+v", deployment.Spec.Replicas, to)
	}
	cpu := scaler.Metrics[0].Resource
	if *scaler.MinReplicas != 3 || scaler.MaxReplicas != 6 || cpu.Name != corev1.ResourceCPU ||
		*cpu.Target.AverageUtilization != 60 || *scaler.Behavior.ScaleDown.StabilizationWindowSeconds != 600 {
		t.Errorf("the autoscaler is %+v", scaler)
	}
	if _, has := deployment.Spec.Template.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; !has {
		t.Error("gateways request no processor time, of which the autoscaler keeps a percentage")
	}
	r = decoded(t, "testdata/trial.yaml")
	if scaler, has := find[*autoscalingv2.HorizontalPodAutoscaler](r, "berth-gateway"); has {
		t.Errorf("an autoscaler was rendered although it is disabled: %+v", scaler)
	}
}
