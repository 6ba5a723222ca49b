{{/* Checks whose schema errors would not be understandable. */}}
{{- define "berth.checks" -}}
{{- $v := .Values -}}
{{- if and (not $v.tls.enabled) (not $v.insecure) -}}
{{- fail "set tls.enabled=true, or insecure=true to allow unencrypted calls (see docs/explanation/security.md)" -}}
{{- end -}}
{{- if and $v.tls.enabled $v.insecure -}}
{{- fail "tls.enabled=true and insecure=true are mutually exclusive: to encrypt a running release step by step, set tls.mode" -}}
{{- end -}}
{{- $secrets := 0 -}}
{{- range list "registry" "executorState" "assigner" "gateway" -}}
{{- if get $v.tls.secrets . -}}{{- $secrets = add1 $secrets -}}{{- end -}}
{{- end -}}
{{- if not (has (int $secrets) (list 0 4)) -}}
{{- fail "tls.secrets: set registry, executorState, assigner and gateway together, or none of them" -}}
{{- end -}}
{{- if and $v.tls.enabled $secrets (not $v.tls.issuer.name) -}}
{{- if and $v.agent.enabled (not $v.tls.secrets.agent) -}}
{{- fail "agents need certificates of the authority that signed tls.secrets: set tls.secrets.agent or tls.issuer.name" -}}
{{- end -}}
{{- if and $v.podMonitor.enabled (not $v.tls.secrets.metrics) (not $v.podMonitor.tokenSecret.name) -}}
{{- fail "Prometheus needs the role viewer: set tls.secrets.metrics, podMonitor.tokenSecret.name or tls.issuer.name" -}}
{{- end -}}
{{- end -}}
{{- if and (include "berth.accessFile" .) $v.access.secretName -}}
{{- fail "access.secretName and access.tokens, issuers and tenants are mutually exclusive" -}}
{{- end -}}
{{- if and (not $v.etcd.endpoints) (not $v.etcd.trial.enabled) -}}
{{- fail "set etcd.endpoints, or etcd.trial.enabled=true for a trial cluster of three members" -}}
{{- end -}}
{{- if and $v.etcd.endpoints $v.etcd.trial.enabled -}}
{{- fail "etcd.endpoints and etcd.trial.enabled=true are mutually exclusive" -}}
{{- end -}}
{{- $https := contains "https://" (join "," $v.etcd.endpoints) -}}
{{- if and $v.etcd.tlsSecretName (include "berth.plainEtcd" .) -}}
{{- fail "etcd.tlsSecretName requires etcd.endpoints that begin with https://" -}}
{{- end -}}
{{- if and $v.tls.enabled $https (not $v.etcd.tlsSecretName) -}}
{{- fail "set etcd.tlsSecretName: etcd must not accept Berth's certificate authority, because every agent has a certificate of it" -}}
{{- end -}}
{{- if and $v.etcd.caSecretName (or $v.tls.enabled $v.etcd.tlsSecretName) -}}
{{- fail "etcd.caSecretName is only for a release without TLS and without etcd.tlsSecretName, whose ca.crt applies instead" -}}
{{- end -}}
{{- if and $v.etcd.user (not $v.etcd.passwordSecretName) -}}
{{- fail "etcd.user requires etcd.passwordSecretName" -}}
{{- end -}}
{{- with $v.gateway -}}
{{- if .autoscaling.enabled -}}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) -}}
{{- fail "gateway.autoscaling.minReplicas must be at most maxReplicas" -}}
{{- end -}}
{{- if not (dig "requests" "cpu" "" .resources) -}}
{{- fail "gateway.autoscaling requires gateway.resources.requests.cpu, of which it keeps a percentage" -}}
{{- end -}}
{{- end -}}
{{- with .routes -}}
{{- $ended := concat .rest .grpc -}}
{{- if and (concat $ended .passthrough) (not .parentRefs) -}}
{{- fail "gateway.routes.parentRefs must name the Gateway of the routes" -}}
{{- end -}}
{{- if gt (len (concat $ended .passthrough)) (len (concat $ended .passthrough | uniq)) -}}
{{- fail "gateway.routes: a host name must be in only one of rest, grpc and passthrough" -}}
{{- end -}}
{{- if and .passthrough (not $v.tls.enabled) -}}
{{- fail "gateway.routes.passthrough requires tls.enabled=true" -}}
{{- end -}}
{{- if and $v.tls.enabled $ended (not .caConfigMapName) -}}
{{- fail "gateway.routes.caConfigMapName must name the authority of the gateways' certificate, or use gateway.routes.passthrough" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $v.agent.enabled (not $v.agent.allow) -}}
{{- fail "agent.allow must not be empty: list the commands that workers may run" -}}
{{- end -}}
{{- with $v.agent -}}
{{- if and (eq .kind "DaemonSet") (or .keepReplicas (ne (int .replicas) 1)) -}}
{{- fail "agent.replicas and agent.keepReplicas require agent.kind=StatefulSet or ReplicaSet" -}}
{{- end -}}
{{- if and .keepReplicas (ne (int .replicas) 1) -}}
{{- fail "agent.keepReplicas=true leaves the number of agents to an autoscaler: agent.replicas must not be set" -}}
{{- end -}}
{{- if and .storage.size (or .hostPath (ne .kind "StatefulSet")) -}}
{{- fail "agent.storage.size requires agent.kind=StatefulSet and no agent.hostPath" -}}
{{- end -}}
{{- end -}}
{{- end -}}
