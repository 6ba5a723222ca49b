{{/* Checks whose schema errors would not be understandable. */}}
{{- define "berth.checks" -}}
{{- $v := .Values -}}
{{- if and (not $v.tls.secretName) (not $v.insecure) -}}
{{- fail "set tls.secretName, or insecure=true to allow unencrypted calls (see docs/explanation/security.md)" -}}
{{- end -}}
{{- if and $v.tls.secretName $v.insecure -}}
{{- fail "tls.secretName and insecure=true are mutually exclusive" -}}
{{- end -}}
{{- if and (not $v.etcd.endpoints) (not $v.etcd.trial.enabled) -}}
{{- fail "set etcd.endpoints, or etcd.trial.enabled=true for a trial cluster of three members" -}}
{{- end -}}
{{- if and $v.etcd.endpoints $v.etcd.trial.enabled -}}
{{- fail "etcd.endpoints and etcd.trial.enabled=true are mutually exclusive" -}}
{{- end -}}
{{- if and $v.tls.secretName $v.etcd.caSecretName -}}
{{- fail "etcd.caSecretName and tls.secretName are mutually exclusive: with TLS, the ca.crt of tls.secretName is also used for etcd" -}}
{{- end -}}
{{- if $v.agent.enabled -}}
{{- if $v.tls.secretName -}}
{{- fail "agents do not support TLS yet and cannot call gateways with TLS: agent.enabled=true requires insecure=true" -}}
{{- end -}}
{{- if not $v.agent.allow -}}
{{- fail "agent.allow must not be empty: list the commands that workers may run" -}}
{{- end -}}
{{- end -}}
{{- end -}}
