{{/*
TLS. Every certificate has one URI that names its process, berth://CLUSTER/ROLE/NAME, by
which the processes of Berth recognize each other. Other clients check host names: those of
the gateways' Service for REST, and one common name for the metrics of all replicas.
*/}}

{{/* Not empty if cert-manager issues the certificates of the services. */}}
{{- define "berth.issued" -}}
{{- if and .Values.tls.enabled (not .Values.tls.secrets.registry) -}}yes{{- end -}}
{{- end -}}

{{/* Not empty if the CSI driver of cert-manager issues the certificates of agents. */}}
{{- define "berth.agentIssued" -}}
{{- if and .Values.tls.enabled (not .Values.tls.secrets.agent) -}}yes{{- end -}}
{{- end -}}

{{/* The name of the issuer. */}}
{{- define "berth.issuer" -}}
{{- .Values.tls.issuer.name | default (include "berth.name" .) -}}
{{- end -}}

{{/* The secret with a certificate: a dict of root, name of the component, and values, its key in tls.secrets. */}}
{{- define "berth.tlsSecret" -}}
{{- get .root.Values.tls.secrets .values | default (printf "%s-%s-tls" (include "berth.name" .root) .name) -}}
{{- end -}}

{{/* The host name for which Prometheus checks certificates. It is not in DNS, because Prometheus connects to the addresses of pods. */}}
{{- define "berth.metricsName" -}}
{{- printf "%s-metrics.%s" (include "berth.name" .) .Release.Namespace -}}
{{- end -}}

{{/* The host names of the gateways for clients, as a list in JSON. */}}
{{- define "berth.publicNames" -}}
{{- $full := printf "%s-gateway" (include "berth.name" .) -}}
{{- $namespaced := printf "%s.%s" $full .Release.Namespace -}}
{{- $names := list $full $namespaced (printf "%s.svc" $namespaced) (printf "%s.svc.%s" $namespaced .Values.clusterDomain) -}}
{{- $routes := .Values.gateway.routes -}}
{{- concat $names (get .Values.gateway.options "public-names" | default list | join "," | splitList "," | compact) .Values.gateway.ingress.hosts $routes.rest $routes.grpc $routes.passthrough | uniq | toJson -}}
{{- end -}}

{{/* The content of the access file in the values; empty without one. */}}
{{- define "berth.accessFile" -}}
{{- $content := dict -}}
{{- range $key, $list := pick .Values.access "tokens" "issuers" "tenants" -}}
{{- if $list -}}{{- $content = set $content $key $list -}}{{- end -}}
{{- end -}}
{{- with $content -}}{{- toYaml . -}}{{- end -}}
{{- end -}}

{{/* The secret with the access file; empty without one. */}}
{{- define "berth.accessSecret" -}}
{{- if include "berth.accessFile" . -}}
{{- printf "%s-access" (include "berth.name" .) -}}
{{- else -}}
{{- .Values.access.secretName -}}
{{- end -}}
{{- end -}}

{{/* The flags for the connections of a process: a dict of root and mode, and of plainEtcd for a process that calls etcd. */}}
{{- define "berth.securityFlags" -}}
{{- $tls := .root.Values.tls -}}
{{- if $tls.enabled -}}
- --tls-cert=/etc/berth/tls/tls.crt
- --tls-key=/etc/berth/tls/tls.key
- --tls-ca=/etc/berth/tls/ca.crt
- --tls-mode={{ .mode }}
{{ end -}}
{{- if or (not $tls.enabled) (ne .mode "require") .plainEtcd -}}
# The ports accept connections without TLS, or etcd has no TLS, which requires this flag.
- --insecure
{{ end -}}
{{- $audit := .root.Values.auditLog | default (ternary "-" "none" $tls.enabled) -}}
{{- if ne $audit "none" -}}
- --audit-log={{ $audit }}
{{ end -}}
{{- end -}}
