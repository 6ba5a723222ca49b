package chart

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWrongValues checks that wrong values fail before anything changes, with a message
// that names the values.
func TestWrongValues(t *testing.T) {
	const good = "insecure: true\netcd: {endpoints: ['etcd:2379']}\n"
	for _, c := range []struct{ values, want string }{
		{"{}", "set tls.secretName, or insecure=true"},
		{"insecure: true", "set etcd.endpoints, or etcd.trial.enabled=true"},
		{"{insecure: true, etcd: {endpoints: ['etcd:2379'], trial: {enabled: true}}}", "are mutually exclusive"},
		{"{insecure: true, tls: {secretName: s}, etcd: {endpoints: ['etcd:2379']}}", "are mutually exclusive"},
		{"{tls: {secretName: s}, etcd: {endpoints: ['etcd:2379'], caSecretName: ca}}", "etcd.caSecretName"},
		{"{tls: {secretName: s}, etcd: {endpoints: ['etcd:2379']}, agent: {enabled: true, allow: [/bin/sleep]}}",
			"agents do not support TLS"},
		{good + "agent: {enabled: true}", "agent.allow must not be empty"},
		{good + "agent: {enabled: true, allow: [sleep]}", "at '/agent/allow/0': 'sleep' does not match pattern"},

		{good + "replicas: 3", "additional properties 'replicas' not allowed"},
		{good + "registry: {replica: 3}", "at '/registry': additional properties 'replica' not allowed"},
		{good + "registry: {replicas: 0}", "minimum: got 0, want 1"},
		{good + "registry: {replicas: three}", "got string, want integer"},
		{good + "registry: {options: {debunce: 10ms}}",
			"at '/registry/options': additional properties 'debunce' not allowed"},
		{good + "registry: {options: {listen: '0.0.0.0:1'}}", "additional properties 'listen' not allowed"},
		{good + "services: {options: {ttl: 3}}", "at '/services/options/ttl': got number, want string"},
		{good + "services: {options: {ttl: 3 seconds}}", "at '/services/options/ttl'"},
		{good + "gateway: {options: {ttl: 3s}}", "additional properties 'ttl' not allowed"},
		{good + "gateway: {service: {type: Headless}}", "ClusterIP"},
		{"{insecure: true, etcd: {endpoints: ['http://etcd:2379']}}", "does not match pattern"},
		{"{insecure: true, etcd: {endpoints: [etcd]}}", "does not match pattern"},
		{good + "cluster: a/b", "does not match pattern"},
		{good + "scheduling: {zones: Never}", "DoNotSchedule"},
		{good + "networkPolicy: {callers: [{}]}", "minProperties"},
		{good + "agent: {enabled: true, allow: [/bin/sleep], capacity: [slots]}", "does not match pattern"},
		{good + "registry: {resources: {limits: {memory: lots}}}", "does not match pattern"},
	} {
		values := map[string]any{}
		if err := yaml.UnmarshalStrict([]byte(c.values), &values); err != nil {
			t.Fatalf("%s: %v", c.values, err)
		}
		switch _, err := render(values); {
		case err == nil:
			t.Errorf("accepted:\n%s", c.values)
		case !strings.Contains(err.Error(), c.want):
			t.Errorf("%s\nthe error does not have %q:\n%v", c.values, c.want, err)
		}
	}
}
