{{/* Names and labels. The name of every object of a release begins with berth.name. */}}

{{- define "berth.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 34 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{/* The labels of selectors: a dict of root and component. */}}
{{- define "berth.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "berth.labels" -}}
{{ include "berth.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* The labels and annotations of pods: a dict of root, component and annotations. The labels
     have no version: otherwise a new image of Berth would restart etcd too. */}}
{{- define "berth.podMetadata" -}}
labels:
  {{- include "berth.selector" . | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) .root.Values.podAnnotations (.annotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "berth.image" -}}
{{- $v := .Values.image -}}
{{- $name := printf "%s:%s" $v.repository ($v.tag | default .Chart.AppVersion) -}}
{{- with $v.digest }}{{ $name = printf "%s@%s" $name . }}{{ end -}}
{{- include "berth.inRegistry" (dict "image" $name "registry" (.Values.global.imageRegistry | default $v.registry)) -}}
{{- end -}}

{{/* An image in a registry, instead of the registry in its name. The first part of a name is
     a registry if it contains a dot or a colon, or is localhost. */}}
{{- define "berth.inRegistry" -}}
{{- $image := .image -}}
{{- with .registry -}}
{{- if regexMatch "^([^/]*[.:][^/]*|localhost)/" $image -}}
{{- $image = regexReplaceAll "^[^/]+/" $image "" -}}
{{- end -}}
{{- $image = printf "%s/%s" (trimSuffix "/" .) $image -}}
{{- end -}}
{{- $image -}}
{{- end -}}

{{/* The three services: the name, the key of the values, the port for calls and the port for health. */}}
{{- define "berth.services" -}}
- {name: registry, values: registry, calls: 7101, http: 7181}
- {name: executor-state, values: executorState, calls: 7102, http: 7182}
- {name: assigner, values: assigner, calls: 7103, http: 7183}
{{- end -}}
