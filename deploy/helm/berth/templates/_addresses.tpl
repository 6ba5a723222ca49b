{{/*
Addresses. Each replica is known by the name of its very pod. A standby proves
its leader dead by what the leader's own address answers, and a gateway has to
hold a connection to every replica to know who leads. A virtual address answers
for whoever stands behind it, or refuses because nobody does: proof of nothing.
*/}}

{{/* One replica: a dict of root, name of the service, pod, port. */}}
{{- define "berth.instance" -}}
{{- printf "%s.%s-%s.%s.svc.%s:%v" .pod (include "berth.name" .root) .name .root.Release.Namespace .root.Values.clusterDomain .port -}}
{{- end -}}

{{/* All replicas: a dict of root, name, replicas, port. */}}
{{- define "berth.instances" -}}
{{- $list := list -}}
{{- range $i := until (int .replicas) -}}
{{- $pod := printf "%s-%s-%d" (include "berth.name" $.root) $.name $i -}}
{{- $list = append $list (include "berth.instance" (dict "root" $.root "name" $.name "pod" $pod "port" $.port)) -}}
{{- end -}}
{{- join "," $list -}}
{{- end -}}

{{/*
The gateways, by the virtual addresses of their services: one for job services and
operators, one for agents, one for the services of the release. Nobody proves a
gateway dead, none of them has anything that another has not, and whoever loses its
connection is led to another one by dialling again. So gateways may come and go
without anybody being told.
*/}}
{{- define "berth.gateways" -}}
{{- printf "%s-gateway.%s.svc.%s:8080" (include "berth.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "berth.gatewaysForAgents" -}}
{{- printf "%s-gateway-agents.%s.svc.%s:8081" (include "berth.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "berth.gatewaysForServices" -}}
{{- printf "%s-gateway-internal.%s.svc.%s:8082" (include "berth.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- end -}}

{{- define "berth.etcd" -}}
{{- if .Values.etcd.trial.enabled -}}
{{- include "berth.instances" (dict "root" . "name" "etcd" "replicas" 3 "port" 2379) -}}
{{- else -}}
{{- join "," .Values.etcd.endpoints -}}
{{- end -}}
{{- end -}}
