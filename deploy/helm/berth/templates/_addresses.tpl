{{/*
Addresses. Each replica has the address of its own pod. A standby probes the address
of its leader to prove that the leader is dead, and a gateway needs a connection to
every replica to find the leader. A virtual address proves nothing: any replica may
answer it, and it refuses connections if no replica is ready.
*/}}

{{/* The address on which processes listen. Linux accepts calls to IPv4 addresses on [::] too. */}}
{{- define "berth.everyAddress" -}}
{{- ternary "[::]" "0.0.0.0" (eq (include "berth.ipv6" .) "yes") -}}
{{- end -}}

{{/* Not empty if the values want addresses of IPv6. */}}
{{- define "berth.ipv6" -}}
{{- $v := .Values.gateway.service -}}
{{- if or (has "IPv6" $v.ipFamilies) (hasSuffix "DualStack" $v.ipFamilyPolicy) -}}yes{{- end -}}
{{- end -}}

{{/* The address of one replica. The argument is a dict of root, name of the service, pod, port. */}}
{{- define "berth.instance" -}}
{{- printf "%s.%s-%s.%s.svc.%s:%v" .pod (include "berth.name" .root) .name .root.Release.Namespace .root.Values.clusterDomain .port -}}
{{- end -}}

{{/* The addresses of all replicas of a service. The argument is a dict of root, name, replicas, port. */}}
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
operators, one for agents, one for the services of the release. Gateways are
interchangeable and are not probed: a client that loses its connection dials again and
reaches another gateway. So gateways can be added and removed without configuration.
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

{{/* Not empty if calls to some member of etcd are in plain text. */}}
{{- define "berth.plainEtcd" -}}
{{- range splitList "," (include "berth.etcd" .) -}}{{- if not (hasPrefix "https://" .) -}}yes{{- end -}}{{- end -}}
{{- end -}}
