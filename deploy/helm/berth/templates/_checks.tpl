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
{{- if ne (empty $v.etcd.user) (empty $v.etcd.passwordSecretName) -}}
{{- fail "etcd.user and etcd.passwordSecretName must be set together" -}}
{{- end -}}
{{- if and $v.agent.enabled (not $v.agent.allow) -}}
{{- fail "agent.allow must not be empty: list the commands that workers may run" -}}
{{- end -}}
{{- end -}}
