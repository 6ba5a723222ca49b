{{/* Parts that all pods use. */}}

{{/* Options as flags: a list of dicts, of which the last one takes precedence. */}}
{{- define "berth.flags" -}}
{{- $all := dict -}}
{{- range . -}}{{- $all = mergeOverwrite $all (deepCopy .) -}}{{- end -}}
{{- range $name := keys $all | sortAlpha }}
{{- $value := get $all $name }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- /* Helm reads numbers as floats and would print 1048576 as 1.048576e+06. */}}
{{- if kindIs "float64" $value }}{{ if eq $value (floor $value) }}{{ $value = int64 $value }}{{ end }}{{ end }}
- {{ printf "--%s=%v" $name $value | quote }}
{{- end }}
{{- end -}}

{{/* The flags of every process except agents: a dict of root, calls, http, stop. */}}
{{- define "berth.commonFlags" -}}
- --cluster={{ .root.Values.cluster }}
- --etcd-endpoints={{ include "berth.etcd" .root }}
- --replica=$(POD_NAME)
- --listen={{ include "berth.everyAddress" .root }}:{{ .calls }}
- --http-listen={{ include "berth.everyAddress" .root }}:{{ .http }}
- --stop-timeout={{ .stop }}s
{{- with .root.Values.etcd }}
{{- if .tlsSecretName }}
- --etcd-cert=/etc/berth/etcd-tls/tls.crt
- --etcd-key=/etc/berth/etcd-tls/tls.key
- --etcd-ca=/etc/berth/etcd-tls/ca.crt
{{- end }}
{{- if .passwordSecretName }}
- --etcd-user={{ .user | default "$(ETCD_USER)" }}
- --etcd-password-file=/etc/berth/etcd-password/password
{{- end }}
{{- end }}
{{- if include "berth.accessSecret" .root }}
- --access=/etc/berth/access/access.yaml
{{- end }}
{{ include "berth.securityFlags" (dict "root" .root "mode" .root.Values.tls.mode "plainEtcd" (include "berth.plainEtcd" .root)) | trim }}
{{- end -}}

{{/* The environment of every process except agents: a dict of root and values. */}}
{{- define "berth.env" -}}
{{- $v := .root.Values -}}
env:
  - name: POD_NAME
    valueFrom: {fieldRef: {fieldPath: metadata.name}}
  {{- if and $v.etcd.passwordSecretName (not $v.etcd.user) }}
  - name: ETCD_USER
    valueFrom: {secretKeyRef: {name: {{ $v.etcd.passwordSecretName }}, key: username}}
  {{- end }}
  {{- if $v.etcd.caSecretName }}
  # Additional certificate authorities; the authorities of the image remain valid.
  - name: SSL_CERT_DIR
    value: /etc/berth/etcd
  {{- end }}
  {{- with (index $v .values).extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with (index $v .values).extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The mounts of every process except agents: a dict of root and values. Directories are
     mounted, and not single files, so that Kubernetes updates the files. */}}
{{- define "berth.mounts" -}}
{{- $v := .root.Values -}}
{{- if $v.tls.enabled }}
- {name: tls, mountPath: /etc/berth/tls, readOnly: true}
{{- end }}
{{- if include "berth.accessSecret" .root }}
- {name: access, mountPath: /etc/berth/access, readOnly: true}
{{- end }}
{{- if or $v.access.caConfigMapName $v.access.caSecretName }}
- {name: issuers, mountPath: /etc/berth/issuers, readOnly: true}
{{- end }}
{{- if $v.etcd.tlsSecretName }}
- {name: etcd-tls, mountPath: /etc/berth/etcd-tls, readOnly: true}
{{- end }}
{{- if $v.etcd.passwordSecretName }}
- {name: etcd-password, mountPath: /etc/berth/etcd-password, readOnly: true}
{{- end }}
{{- if $v.etcd.caSecretName }}
- {name: etcd-ca, mountPath: /etc/berth/etcd, readOnly: true}
{{- end }}
{{- with (index $v .values).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The volumes of every process except agents: a dict of root, name, values. */}}
{{- define "berth.volumes" -}}
{{- $v := .root.Values -}}
{{- if $v.tls.enabled }}
- name: tls
  secret: {secretName: {{ include "berth.tlsSecret" . }}, defaultMode: 0440}
{{- end }}
{{- with include "berth.accessSecret" .root }}
- name: access
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $v.access.caConfigMapName }}
- name: issuers
  configMap: {name: {{ . }}}
{{- end }}
{{- with $v.access.caSecretName }}
- name: issuers
  secret: {secretName: {{ . }}}
{{- end }}
{{- with $v.etcd.tlsSecretName }}
- name: etcd-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- with $v.etcd.passwordSecretName }}
- name: etcd-password
  secret: {secretName: {{ . }}, defaultMode: 0440, items: [{key: password, path: password}]}
{{- end }}
{{- with $v.etcd.caSecretName }}
- name: etcd-ca
  secret: {secretName: {{ . }}, items: [{key: ca.crt, path: ca.crt}]}
{{- end }}
{{- with (index $v .values).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The probes of a gateway. A gateway that lacks what it needs from its start, such as one with a
     wrong address, never becomes ready. Later it stays ready: if etcd or a service fails, all
     gateways lack it, and agents must still reach them. */}}
{{- define "berth.gatewayProbes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" .Values.tls.enabled -}}
startupProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1800
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{- define "berth.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" .Values.tls.enabled -}}
# The probes must not use /leaderz: a standby is healthy too and must keep running.
livenessProbe:
  httpGet: {path: /healthz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: http, scheme: {{ $scheme }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end -}}

{{/* What all pods have in common: a dict of root, component, account, the values of a service
     account, and security, the fields of the security context. Berth does not call the
     Kubernetes API. */}}
{{- define "berth.podBasics" -}}
{{- with include "berth.serviceAccount" . }}
serviceAccountName: {{ . }}
{{- end }}
automountServiceAccountToken: {{ .account.automount }}
# For a service berth-registry, Kubernetes would set variables BERTH_REGISTRY_…,
# which look like options of Berth.
enableServiceLinks: false
{{- $v := .root.Values }}
{{- $secrets := list }}
{{- range concat ($v.global.imagePullSecrets | default list) $v.image.pullSecrets }}
{{- $secrets = append $secrets (ternary (dict "name" .) . (kindIs "string" .)) }}
{{- end }}
{{- with uniq $secrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- include "berth.securityContext" .security }}
{{- end -}}

{{/* A security context without the fields that are null, which the cluster imposes. */}}
{{- define "berth.securityContext" -}}
{{- $fields := dict -}}
{{- range $field, $value := . -}}
{{- if not (kindIs "invalid" $value) -}}{{- $fields = set $fields $field $value -}}{{- end -}}
{{- end -}}
{{- with $fields }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The security context of the containers of all pods except agents. */}}
{{- define "berth.containerSecurity" -}}
{{- include "berth.securityContext" .Values.containerSecurityContext }}
{{- end -}}

{{/* What the pods of the services, the gateways and the trial etcd have in common. */}}
{{- define "berth.podSecurity" -}}
{{- include "berth.podBasics" (dict "root" . "component" "" "account" .Values.serviceAccount "security" .Values.podSecurityContext) -}}
{{- end -}}

{{/* The name of a service account; empty for the one of the namespace. The argument is a dict
     of root, component, which is empty for all pods except agents, and account. */}}
{{- define "berth.serviceAccount" -}}
{{- $created := include "berth.name" .root -}}
{{- with .component }}{{ $created = printf "%s-%s" $created . }}{{ end -}}
{{- .account.name | default (ternary $created "" .account.create) -}}
{{- end -}}

{{/* Where pods run: a dict of root, component and values, the values of scheduling. With
     spread, replicas are spread over hosts and zones unless the values say otherwise. keys
     has the labels that distinguish the generations of a Deployment during an update. */}}
{{- define "berth.scheduling" -}}
{{- $of := . -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" }}
{{- with get $of.values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- $constraints := .values.topologySpreadConstraints }}
{{- if and .spread (not $constraints) }}
{{- /* The failure of one host affects only one replica. Hosts that accept no pods do not
count. Otherwise a replica could not be placed while one of three hosts is drained. */}}
{{- range $topology, $unsatisfiable := dict "kubernetes.io/hostname" "DoNotSchedule" "topology.kubernetes.io/zone" .values.zones }}
{{- $constraints = append $constraints (dict "maxSkew" 1 "topologyKey" $topology "whenUnsatisfiable" $unsatisfiable "nodeTaintsPolicy" "Honor") }}
{{- end }}
{{- end }}
{{- with $constraints }}
topologySpreadConstraints:
  {{- range . }}
  {{- $standard := dict }}
  {{- if not .labelSelector }}
  {{- $standard = dict "labelSelector" (dict "matchLabels" (include "berth.selector" $of | fromYaml)) }}
  {{- with $of.keys }}{{ $standard = set $standard "matchLabelKeys" . }}{{ end }}
  {{- end }}
  - {{ toJson (merge (deepCopy .) $standard) }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* The values of scheduling for a component: its own values that are not empty, and
     otherwise those for all. The argument is a dict of root and values. */}}
{{- define "berth.placement" -}}
{{- $all := deepCopy .root.Values.scheduling -}}
{{- range $key, $value := pick (index .root.Values .values) "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
{{- if $value -}}{{- $all = set $all $key $value -}}{{- end -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{/* A PodDisruptionBudget. The argument is a dict of root and component. */}}
{{- define "berth.budget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "berth.name" .root }}-{{ .component }}
  labels:
    {{- include "berth.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  # A replica that is not ready must not prevent the drain of its host.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "berth.selector" . | nindent 6 }}
{{- end -}}
