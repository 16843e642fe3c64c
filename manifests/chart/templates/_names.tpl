{{- define "ccm.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "ccm.selectorLabels" -}}
{{ tpl (toYaml .Values.selectorLabels) . }}
{{- end }}

{{- /* Of every object. */}}
{{- define "ccm.labels" -}}
app.kubernetes.io/name: {{ include "ccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* Where it listens, as args or env say: [IP]:PORT. */}}
{{- define "ccm.listen" -}}
{{ index .Values.args "metrics-address" | default (dig "HCLOUD_METRICS_ADDRESS" "value" "" .Values.env) | default ":8233" }}
{{- end }}

{{- /* Values files of hcloud-cloud-controller-manager's chart name this one. */}}
{{- define "hcloud-cloud-controller-manager.name" -}}
{{ include "ccm.name" . }}
{{- end }}

{{- define "ccm.controlPlanes" -}}
nodeAffinity:
  requiredDuringSchedulingIgnoredDuringExecution:
    nodeSelectorTerms:
      - matchExpressions:
          - key: node-role.kubernetes.io/control-plane
            operator: Exists
{{- end }}
