package chart

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestWrongValues checks that wrong values fail before anything changes, with a message
// that names the values.
func TestWrongValues(t *testing.T) {
	const (
		good      = "insecure: true\netcd: {endpoints: ['etcd:2379']}\n"
		encrypted = "tls: {enabled: true}\netcd: {endpoints: ['etcd:2379']}\n"
		provided  = "{enabled: true, secrets: {registry: s, executorState: s, assigner: s, gateway: s}}"
	)
	for _, c := range []struct{ values, want string }{
		{"{}", "set tls.enabled=true, or insecure=true"},
		{"insecure: true", "set etcd.endpoints, or etcd.trial.enabled=true"},
		{"{insecure: true, etcd: {endpoints: ['etcd:2379'], trial: {enabled: true}}}", "are mutually exclusive"},
		{good + "tls: {enabled: true}", "tls.enabled=true and insecure=true are mutually exclusive"},
		{encrypted + "access: {tokens: [{}], secretName: s}", "are mutually exclusive"},
		{"{tls: {enabled: true, secrets: {registry: s}}, etcd: {endpoints: ['etcd:2379']}}",
			"tls.secrets: set registry, executorState, assigner and gateway together"},
		{"{tls: " + provided + ", etcd: {endpoints: ['etcd:2379']}, agent: {enabled: true, allow: [/bin/sleep]}}",
			"set tls.secrets.agent or tls.issuer.name"},
		{"{tls: " + provided + ", etcd: {endpoints: ['etcd:2379']}, podMonitor: {enabled: true}}",
			"set tls.secrets.metrics, podMonitor.tokenSecret.name or tls.issuer.name"},
		{"{tls: {enabled: true}, etcd: {endpoints: ['https://etcd:2379']}}", "set etcd.tlsSecretName"},
		{"{insecure: true, etcd: {endpoints: ['etcd:2379'], tlsSecretName: s}}",
			"etcd.tlsSecretName requires etcd.endpoints that begin with https://"},
		{"{insecure: true, etcd: {endpoints: ['https://e:2379', 'etcd:2379'], tlsSecretName: s}}",
			"etcd.tlsSecretName requires etcd.endpoints that begin with https://"},
		{"{tls: {enabled: true}, etcd: {endpoints: ['etcd:2379'], caSecretName: ca}}", "etcd.caSecretName is only for"},
		{"{insecure: true, etcd: {endpoints: ['etcd:2379'], user: berth}}", "etcd.user requires etcd.passwordSecretName"},
		{encrypted + "auditLog: /tmp/audit", "at '/auditLog': value must be one of '', '-', 'none'"},
		{good + "agent: {enabled: true, allow: [/bin/sleep], workerUids: '200000'}", "at '/agent/workerUids'"},
		{good + "agent: {enabled: true}", "agent.allow must not be empty"},
		{good + "agent: {enabled: true, allow: [sleep]}", "at '/agent/allow/0': 'sleep' does not match pattern"},

		{encrypted + "access: {tokens: [{}], caSecretName: s, caConfigMapName: c}", "are mutually exclusive"},
		{encrypted + "access: {caSecretName: s}", "are for the issuers in access.issuers or access.secretName"},
		{good + "global: {registry: a}", "global.registry is not a value of this chart"},
		{good + "global: {imageRegistry: 'https://registry.example.com'}", "at '/global/imageRegistry'"},
		{good + "global: {imagePullSecrets: [{secret: a}]}", "missing property 'name'"},
		{good + "image: {repository: 'berth@sha256:0'}", "at '/image/repository'"},
		{good + "image: {digest: '0'}", "at '/image/digest'"},
		{good + "serviceAccount: {annotations: {a: b}}", "serviceAccount.annotations requires serviceAccount.create=true"},
		{good + "agent: {serviceAccount: {annotations: {a: b}}}", "requires agent.serviceAccount.create=true"},
		{good + "podSecurityContext: {runAsUser: any}", "at '/podSecurityContext/runAsUser': got string, want null or integer"},
		{good + "tls: {secrets: {agent: s}}", "tls.issuer.name and tls.secrets require tls.enabled=true"},
		{good + "podMonitor: {tokenSecret: {name: s}}", "podMonitor.tokenSecret requires tls.enabled=true"},
		{good + "gateway: {service: {loadBalancerClass: a}}",
			"gateway.service.loadBalancerClass requires gateway.service.type=LoadBalancer"},
		{good + "gateway: {service: {type: NodePort, allocateLoadBalancerNodePorts: false}}",
			"allocateLoadBalancerNodePorts requires gateway.service.type=LoadBalancer"},
		{good + "gateway: {service: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0]}}", "does not match pattern"},
		{good + "gateway: {service: {type: LoadBalancer, healthCheckNodePort: 32000}}",
			"requires gateway.service.externalTrafficPolicy=Local"},
		{good + "gateway: {service: {nodePort: 32000}}", "requires gateway.service.type=NodePort or LoadBalancer"},
		{good + "gateway: {service: {externalTrafficPolicy: Local}}",
			"requires gateway.service.type=NodePort or LoadBalancer"},
		{good + "gateway: {service: {ipFamilies: [IPv4, IPv6]}}", "requires gateway.service.ipFamilyPolicy"},
		{good + "gateway: {service: {ipFamilies: [IPv4, IPv6], ipFamilyPolicy: SingleStack}}", "must be one family"},
		{good + "gateway: {ingress: {className: nginx}}", "gateway.ingress.hosts must not be empty"},
		{good + "gateway: {routes: {parentRefs: [{name: g}]}}", "set host names in rest, grpc or passthrough"},
		{good + "agent: {storage: {storageClassName: fast}}", "agent.storage.storageClassName requires agent.storage.size"},
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
		{good + "gateway: {autoscaling: {enabled: true, minReplicas: 11}}", "gateway.autoscaling.minReplicas must be at most"},
		{good + "gateway: {autoscaling: {enabled: true}, resources: {requests: {cpu: null}}}",
			"gateway.autoscaling requires gateway.resources.requests.cpu"},
		{good + "gateway: {routes: {rest: [a.example.com]}}", "gateway.routes.parentRefs must name the Gateway"},
		{good + "gateway: {routes: {parentRefs: [{name: g}], rest: [a.example.com], grpc: [a.example.com]}}",
			"a host name must be in only one of rest, grpc and passthrough"},
		{good + "gateway: {routes: {parentRefs: [{name: g}], passthrough: [a.example.com]}}",
			"gateway.routes.passthrough requires tls.enabled=true"},
		{encrypted + "gateway: {routes: {parentRefs: [{name: g}], grpc: [a.example.com]}}",
			"gateway.routes.caConfigMapName must name the authority"},
		{good + "gateway: {ingress: {hosts: ['https://a.example.com']}}", "does not match pattern"},
		{good + "agent: {replicas: 3}", "require agent.kind=StatefulSet or ReplicaSet"},
		{good + "agent: {keepReplicas: true}", "require agent.kind=StatefulSet or ReplicaSet"},
		{good + "agent: {kind: StatefulSet, keepReplicas: true, replicas: 3}", "agent.replicas must not be set"},
		{good + "agent: {kind: ReplicaSet, storage: {size: 1Gi}}", "agent.storage.size requires agent.kind=StatefulSet"},
		{good + "agent: {kind: StatefulSet, storage: {size: 1Gi}, hostPath: /data}",
			"agent.storage.size requires agent.kind=StatefulSet and no agent.hostPath"},
		{good + "agent: {kind: Deployment}", "'DaemonSet', 'StatefulSet', 'ReplicaSet'"},
		{good + "registry: {extraEnv: [{value: a}]}", "missing property 'name'"},
		{good + "registry: {extraEnv: [{name: BERTH_ETCD_ENDPOINTS, value: e}]}",
			"registry.extraEnv: the chart sets BERTH_ETCD_ENDPOINTS; use its values instead"},
		{good + "gateway: {extraEnv: [{name: BERTH_LOG_FORMAT, value: text}]}", "the chart sets BERTH_LOG_FORMAT"},
		{good + "gateway: {extraEnv: [{name: A, valueFrom: {secretRef: {name: s}}}]}", "additional properties 'secretRef'"},
		{good + "gateway: {extraEnvFrom: [{secretRef: {secretName: s}}]}", "additional properties 'secretName' not allowed"},
		{good + "agent: {extraVolumes: [{name: tmp, emptyDir: {}}]}", "agent.extraVolumes: tmp is a volume of the chart"},
		{good + "gateway: {service: {labels: {helm.sh/chart: a}}}", "gateway.service.labels: the chart sets helm.sh/chart"},
		{good + "scheduling: {affinity: {podAntiAffinity: {requiredDuringScheduling: []}}}",
			"additional properties 'requiredDuringScheduling' not allowed"},
		{good + "podSecurityContext: {seccompProfile: {kind: RuntimeDefault}}", "additional properties 'kind' not allowed"},
		{good + "networkPolicy: {callers: [{ipBlock: {range: 10.0.0.0/8}}]}", "additional properties 'range' not allowed"},
		{good + "image: {repository: 'quay.io/berth/berth:1.2.3'}", "at '/image/repository'"},
		{good + "assigner: {extraVolumeMounts: [{name: a, mountPath: a}]}", "does not match pattern"},
		{good + "prometheusRule: {runbookUrl: wiki}", "does not match pattern"},
		{good + "cluster: a/b", "does not match pattern"},
		{good + "scheduling: {zones: Never}", "DoNotSchedule"},
		{good + "networkPolicy: {callers: [{}]}", "minProperties"},
		{good + "agent: {enabled: true, allow: [/bin/sleep], capacity: [slots]}", "does not match pattern"},
		{good + "registry: {resources: {limits: {memory: lots}}}", "does not match pattern"},

		{good + "podAnnotations: {a: true}", "at '/podAnnotations/a': got boolean, want string"},
		{good + "registry: {nodeSelector: {gpu: true}}", "at '/registry/nodeSelector/gpu': got boolean, want string"},
		{good + "image: {tag: 1.10}", "at '/image/tag': got number, want string"},
		{good + "image: {tag: 1.2.3+a}", "at '/image/tag'"},
		{good + "image: {repository: 'https://registry.example.com/berth'}", "at '/image/repository'"},
		{good + "image: {repository: Berth}", "at '/image/repository'"},
		{good + "global: {imageRegistry: registry.example.com//}", "at '/global/imageRegistry'"},
		{good + "agent: {image: 'https://registry.example.com/berth'}", "at '/agent/image'"},
		{good + "gateway: {service: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.0/99]}}", "does not match pattern"},
		{good + "gateway: {service: {type: NodePort, nodePort: 70000}}", "at '/gateway/service/nodePort'"},
		{good + "gateway: {options: {call_deadline: 3s}}", "additional properties 'call_deadline' not allowed"},
		{good + "gateway: {options: {call-deadline: '30'}}", "at '/gateway/options/call-deadline': '30' does not match"},
		{good + "gateway: {options: {base-path: berth}}", "at '/gateway/options/base-path'"},
		{good + "gateway: {extraEnv: [{name: A, value: a}, {name: A, value: b}]}", "gateway.extraEnv: A must be set only once"},
		{good + "gateway: {extraEnv: [{name: A, value: a, valueFrom: {configMapKeyRef: {name: a, key: b}}}]}",
			"gateway.extraEnv: A must have value or valueFrom"},
		{good + "gateway: {extraEnv: [{name: A=B}]}", "at '/gateway/extraEnv/0/name'"},
		{good + "gateway: {extraEnv: [{name: BERTH_PUBLIC_NAMES, value: a}]}", "the chart sets BERTH_PUBLIC_NAMES"},
		{encrypted + "gateway: {extraEnv: [{name: BERTH_TLS_MODE, value: allow}]}", "the chart sets BERTH_TLS_MODE"},
		{encrypted + "agent: {extraEnv: [{name: BERTH_AUDIT_LOG, value: /a}]}", "the chart sets BERTH_AUDIT_LOG"},
		{good + "agent: {sku: a, extraEnv: [{name: BERTH_SKU, value: b}]}", "the chart sets BERTH_SKU"},
		{good + "gateway: {extraEnvFrom: [{prefix: A_}]}", "at '/gateway/extraEnvFrom/0': 'oneOf' failed"},
		{good + "gateway: {extraVolumes: [{name: a, emptyDir: {}}, {name: a, emptyDir: {}}]}", "the name a must be used only once"},
		{good + "gateway: {extraVolumes: [{name: A_b, emptyDir: {}}]}", "at '/gateway/extraVolumes/0/name'"},
		{good + "gateway: {extraVolumeMounts: [{name: a, mountPath: /a}]}",
			"gateway.extraVolumeMounts: a is not in gateway.extraVolumes"},
		{good + "agent: {extraVolumes: [{name: a, emptyDir: {}}], extraVolumeMounts: [{name: a, mountPath: /tmp/}]}",
			"agent.extraVolumeMounts: another volume is mounted at /tmp/"},
		{encrypted + "registry: {extraVolumeMounts: [{name: tls, mountPath: /etc/berth/tls}]}",
			"registry.extraVolumeMounts: another volume is mounted at /etc/berth/tls"},
		{good + "networkPolicy: {callers: [{ipBlock: {cidr: 10.0.0.0}}]}", "at '/networkPolicy/callers/0/ipBlock/cidr'"},
		{good + "registry: {resources: {requests: {cpu: -1}}}", "at '/registry/resources/requests/cpu'"},
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
