{{/* Checks whose schema errors would not be understandable. */}}
{{- define "berth.checks" -}}
{{- $v := .Values -}}
{{- if and (not $v.tls.enabled) (not $v.insecure) -}}
{{- fail "set tls.enabled=true, or insecure=true to allow unencrypted calls (see docs/explanation/security.md)" -}}
{{- end -}}
{{- if and $v.tls.enabled $v.insecure -}}
{{- fail "tls.enabled=true and insecure=true are mutually exclusive: to encrypt a running release step by step, set tls.mode" -}}
{{- end -}}
{{- /* A part of another chart gets the values for all its parts. */}}
{{- if .Chart.IsRoot -}}
{{- range keys (omit $v.global "imageRegistry" "imagePullSecrets") | sortAlpha -}}
{{- fail (printf "global.%s is not a value of this chart (see docs/reference/chart.md)" .) -}}
{{- end -}}
{{- end -}}
{{- range $at, $account := dict "serviceAccount" $v.serviceAccount "agent.serviceAccount" $v.agent.serviceAccount -}}
{{- if and $account.annotations (not $account.create) -}}
{{- fail (printf "%s.annotations requires %s.create=true" $at $at) -}}
{{- end -}}
{{- end -}}
{{- if and (not $v.tls.enabled) (or $v.tls.issuer.name (compact (values $v.tls.secrets))) -}}
{{- fail "tls.issuer.name and tls.secrets require tls.enabled=true" -}}
{{- end -}}
{{- if and $v.podMonitor.tokenSecret.name (not $v.tls.enabled) -}}
{{- fail "podMonitor.tokenSecret requires tls.enabled=true: without TLS, metrics need no token" -}}
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
{{- if and $v.access.caConfigMapName $v.access.caSecretName -}}
{{- fail "access.caConfigMapName and access.caSecretName are mutually exclusive" -}}
{{- end -}}
{{- if and (or $v.access.caConfigMapName $v.access.caSecretName) (not (include "berth.accessSecret" .)) -}}
{{- fail "access.caConfigMapName and access.caSecretName are for the issuers in access.issuers or access.secretName" -}}
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
{{- with $v.gateway.service -}}
{{- $balanced := eq .type "LoadBalancer" -}}
{{- range $field := list "loadBalancerClass" "loadBalancerIP" "loadBalancerSourceRanges" "healthCheckNodePort" -}}
{{- if and (get $v.gateway.service $field) (not $balanced) -}}
{{- fail (printf "gateway.service.%s requires gateway.service.type=LoadBalancer" $field) -}}
{{- end -}}
{{- end -}}
{{- if and (kindIs "bool" .allocateLoadBalancerNodePorts) (not $balanced) -}}
{{- fail "gateway.service.allocateLoadBalancerNodePorts requires gateway.service.type=LoadBalancer" -}}
{{- end -}}
{{- if and .healthCheckNodePort (ne .externalTrafficPolicy "Local") -}}
{{- fail "gateway.service.healthCheckNodePort requires gateway.service.externalTrafficPolicy=Local" -}}
{{- end -}}
{{- if and .nodePort (eq .type "ClusterIP") -}}
{{- fail "gateway.service.nodePort requires gateway.service.type=NodePort or LoadBalancer" -}}
{{- end -}}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") (not .externalIPs) -}}
{{- fail "gateway.service.externalTrafficPolicy requires gateway.service.type=NodePort or LoadBalancer, or externalIPs" -}}
{{- end -}}
{{- if and (eq .ipFamilyPolicy "SingleStack") (gt (len .ipFamilies) 1) -}}
{{- fail "gateway.service.ipFamilies must be one family with gateway.service.ipFamilyPolicy=SingleStack" -}}
{{- end -}}
{{- if and (gt (len .ipFamilies) 1) (not .ipFamilyPolicy) -}}
{{- fail "gateway.service.ipFamilies with two families requires gateway.service.ipFamilyPolicy=PreferDualStack or RequireDualStack" -}}
{{- end -}}
{{- end -}}
{{- with $v.gateway.ingress -}}
{{- if and (or .className .annotations .tlsSecretName) (not .hosts) -}}
{{- fail "gateway.ingress.hosts must not be empty if another value of gateway.ingress is set" -}}
{{- end -}}
{{- end -}}
{{- with $v.gateway -}}
{{- if .autoscaling.enabled -}}
{{- if gt (int .autoscaling.minReplicas) (int .autoscaling.maxReplicas) -}}
{{- fail "gateway.autoscaling.minReplicas must be at most maxReplicas" -}}
{{- end -}}
{{- if not (dig "requests" "cpu" "" (.resources | default dict)) -}}
{{- fail "gateway.autoscaling requires gateway.resources.requests.cpu, of which it keeps a percentage" -}}
{{- end -}}
{{- end -}}
{{- with .routes -}}
{{- $ended := concat .rest .grpc -}}
{{- if and (or .parentRefs .annotations .caConfigMapName) (not (concat $ended .passthrough)) -}}
{{- fail "gateway.routes: set host names in rest, grpc or passthrough, or none of the other values" -}}
{{- end -}}
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
{{- if and .storage.storageClassName (not .storage.size) -}}
{{- fail "agent.storage.storageClassName requires agent.storage.size" -}}
{{- end -}}
{{- if and .storage.size (or .hostPath (ne .kind "StatefulSet")) -}}
{{- fail "agent.storage.size requires agent.kind=StatefulSet and no agent.hostPath" -}}
{{- end -}}
{{- end -}}
{{- /* Labels with the same key would make an object invalid, or no selector would match it. */}}
{{- $standard := include "berth.labels" (dict "root" . "component" "") | fromYaml -}}
{{- $selector := include "berth.selector" (dict "root" . "component" "") | fromYaml -}}
{{- range $at, $labels := dict "podLabels" (dict "own" $v.podLabels "chart" $selector) "gateway.service.labels" (dict "own" $v.gateway.service.labels "chart" $standard) "podMonitor.labels" (dict "own" $v.podMonitor.labels "chart" $standard) "prometheusRule.labels" (dict "own" $v.prometheusRule.labels "chart" $standard) "grafanaDashboard.labels" (dict "own" $v.grafanaDashboard.labels "chart" $standard) -}}
{{- range keys $labels.own | sortAlpha -}}
{{- if hasKey $labels.chart . -}}{{- fail (printf "%s: the chart sets %s" $at .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- range $component := list "registry" "executorState" "assigner" "gateway" "agent" -}}
{{- $own := index $v $component -}}
{{- $agent := eq $component "agent" -}}
{{- /* The chart's variables, and the variables of options that are flags, which take precedence. */}}
{{- $set := ternary (list "POD_NAME" "NODE_NAME" "POD_IP" "TMPDIR") (list "POD_NAME") $agent -}}
{{- if and (not $agent) $v.etcd.caSecretName -}}{{- $set = append $set "SSL_CERT_DIR" -}}{{- end -}}
{{- if and (not $agent) $v.etcd.passwordSecretName (not $v.etcd.user) -}}{{- $set = append $set "ETCD_USER" -}}{{- end -}}
{{- $flags := splitList " " "advertise gateways registry executor-state assigner agents-listen internal-listen public-names id dir listen http-listen stop-timeout stop-workers allow" -}}
{{- $given := ternary (include "berth.securityFlags" (dict "root" $ "mode" $v.tls.mode)) (include "berth.commonFlags" (dict "root" $ "calls" 0 "http" 0 "stop" 0)) $agent -}}
{{- range regexFindAll "(?m)^- --[a-z-]+" $given -1 -}}{{- $flags = append $flags (trimPrefix "- --" .) -}}{{- end -}}
{{- range $flag, $value := dict "allow-env" $v.agent.allowEnv "resources" $v.agent.capacity "attributes" $v.agent.attributes "sku" $v.agent.sku "worker-uids" $v.agent.workerUids -}}
{{- if and $agent $value -}}{{- $flags = append $flags $flag -}}{{- end -}}
{{- end -}}
{{- $flags = concat $flags (keys $v.options) (keys $own.options) (ternary (keys $v.services.options) list (not (has $component (list "gateway" "agent")))) -}}
{{- range $flags -}}{{- $set = append $set (printf "BERTH_%s" (upper . | replace "-" "_")) -}}{{- end -}}
{{- $names := list -}}
{{- range $own.extraEnv -}}
{{- if has .name $set -}}{{- fail (printf "%s.extraEnv: the chart sets %s; use its values instead" $component .name) -}}{{- end -}}
{{- if has .name $names -}}{{- fail (printf "%s.extraEnv: %s must be set only once" $component .name) -}}{{- end -}}
{{- if and .value .valueFrom -}}{{- fail (printf "%s.extraEnv: %s must have value or valueFrom, not both" $component .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- $volumes := list "tls" "access" "issuers" "etcd-tls" "etcd-password" "etcd-ca" -}}
{{- if $agent -}}{{- $volumes = list "tls" "dir" "tmp" -}}{{- end -}}
{{- $names = list -}}
{{- range $own.extraVolumes -}}
{{- if has .name $volumes -}}{{- fail (printf "%s.extraVolumes: %s is a volume of the chart; choose another name" $component .name) -}}{{- end -}}
{{- if has .name $names -}}{{- fail (printf "%s.extraVolumes: the name %s must be used only once" $component .name) -}}{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- range $own.extraVolumeMounts -}}
{{- if not (has .name (concat $names $volumes)) -}}{{- fail (printf "%s.extraVolumeMounts: %s is not in %s.extraVolumes" $component .name $component) -}}{{- end -}}
{{- end -}}
{{- $mounts := list (dict "mountPath" "/var/lib/berth-agent") (dict "mountPath" "/tmp") -}}
{{- if $v.tls.enabled -}}{{- $mounts = append $mounts (dict "mountPath" "/etc/berth/tls") -}}{{- end -}}
{{- $mounts = concat $mounts ($own.extraVolumeMounts | default list) -}}
{{- if not $agent -}}{{- $mounts = include "berth.mounts" (dict "root" $ "values" $component) | fromYamlArray -}}{{- end -}}
{{- $names = list -}}
{{- range $mounts -}}
{{- $path := trimSuffix "/" .mountPath -}}
{{- if has $path $names -}}{{- fail (printf "%s.extraVolumeMounts: another volume is mounted at %s" $component .mountPath) -}}{{- end -}}
{{- $names = append $names $path -}}
{{- end -}}
{{- end -}}
{{- end -}}
