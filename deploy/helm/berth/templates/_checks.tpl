{{/* Checks of the values for which the schema has no useful error message. */}}
{{- define "berth.checks" -}}
{{- $v := .Values -}}
{{- if and (not $v.tls.secretName) (not $v.insecure) -}}
{{- fail "set tls.secretName, or insecure=true for calls without TLS (see docs/explanation/security.md)" -}}
{{- end -}}
{{- if and $v.tls.secretName $v.insecure -}}
{{- fail "tls.secretName and insecure=true exclude each other" -}}
{{- end -}}
{{- if and (not $v.etcd.endpoints) (not $v.etcd.trial.enabled) -}}
{{- fail "set etcd.endpoints, or etcd.trial.enabled=true for three members for trials" -}}
{{- end -}}
{{- if and $v.etcd.endpoints $v.etcd.trial.enabled -}}
{{- fail "etcd.endpoints and etcd.trial.enabled=true exclude each other" -}}
{{- end -}}
{{- if and $v.tls.secretName $v.etcd.caSecretName -}}
{{- fail "etcd.caSecretName cannot be used with tls.secretName, whose ca.crt has the certificate authorities" -}}
{{- end -}}
{{- if $v.agent.enabled -}}
{{- if $v.tls.secretName -}}
{{- fail "agents have no TLS yet and cannot call gateways that use TLS: agent.enabled=true requires insecure=true" -}}
{{- end -}}
{{- if not $v.agent.allow -}}
{{- fail "agent.allow is empty: name the commands that workers may run" -}}
{{- end -}}
{{- end -}}
{{- end -}}
