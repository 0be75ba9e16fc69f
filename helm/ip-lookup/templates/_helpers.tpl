{{/* Names, labels, images and settings shared by all pods. */}}

{{- define "ip-lookup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "ip-lookup.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "ip-lookup.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "ip-lookup.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Selectors are immutable, so they contain only name, instance and component. Argument: (list $ "component") */}}
{{- define "ip-lookup.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "ip-lookup.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "ip-lookup.labels" -}}
{{- $root := index . 0 -}}
{{ include "ip-lookup.selector" . }}
app.kubernetes.io/part-of: {{ include "ip-lookup.name" $root }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of an object. Argument: (list $ "component" "name") */}}
{{- define "ip-lookup.metadata" -}}
name: {{ index . 2 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "ip-lookup.labels" (list (index . 0) (index . 1)) | nindent 2 }}
{{- end -}}

{{/* Argument: (list $ image) */}}
{{- define "ip-lookup.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with $root.Values.global.imageRegistry -}}{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $name (default $root.Chart.AppVersion $image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "ip-lookup.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- if $root.Values.serviceAccount.create -}}
{{- printf "%s-%s" (include "ip-lookup.fullname" $root) (index . 1) -}}
{{- else -}}
{{- default "default" $root.Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ip-lookup.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "ip-lookup.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* Pod settings shared by our services. Argument: (list $ "component" values-of-the-component) */}}
{{- define "ip-lookup.podBasics" -}}
{{- $root := index . 0 -}}{{- $values := index . 2 -}}
serviceAccountName: {{ include "ip-lookup.serviceAccount" (list $root (index . 1)) }}
# A container that needs the Kubernetes API gets its own token (see the volume kube-api).
automountServiceAccountToken: false
# Prevents a Service whose name matches a flag from setting that flag's environment variable.
enableServiceLinks: false
securityContext:
  {{- include "ip-lookup.podSecurity" $root | nindent 2 }}
{{- with $root.Values.global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Argument: (list $ "component" values-of-the-component) */}}
{{- define "ip-lookup.spread" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}
topologySpreadConstraints:
{{- with (index . 2).topologySpreadConstraints }}
  {{- toYaml . | nindent 2 }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "ip-lookup.selector" (list $root $component) | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Seconds from SIGTERM to SIGKILL: the service's maximum shutdown time, plus time for the sidecar to stop after it. */}}
{{- define "ip-lookup.terminationSeconds" -}}
{{- add .Values.shutdown.drainSeconds .Values.shutdown.graceSeconds 10 -}}
{{- end -}}

{{- define "ip-lookup.apiUrl" -}}
{{- default (printf "https://%s" .Values.hosts.api) .Values.urls.api -}}
{{- end -}}

{{- define "ip-lookup.dashboardUrl" -}}
{{- default (printf "https://%s" .Values.hosts.dashboard) .Values.urls.dashboard -}}
{{- end -}}

{{/* Probes of a container with this admin port. The sidecar has no readiness probe: a store outage must not remove
all endpoints from the Service. Argument: (list "port" whether-to-add-a-readiness-probe) */}}
{{- define "ip-lookup.probes" -}}
{{- $port := index . 0 -}}
startupProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
{{- if index . 1 }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 1
{{- end }}
{{- end -}}

{{/* Shared environment variables, from the ConfigMap. */}}
{{- define "ip-lookup.envFrom" -}}
envFrom:
  - configMapRef:
      name: {{ include "ip-lookup.fullname" . }}
{{- end -}}

{{/* Intentional exceptions for the policy checker checkov. */}}
{{- define "ip-lookup.checkovSkips" -}}
checkov.io/skip1: CKV_K8S_11=No CPU limit because throttling adds latency - requests are set
checkov.io/skip2: CKV_K8S_43=Images can be pinned by digest with the image.digest values
checkov.io/skip3: CKV_K8S_15=Tags are immutable versions, so IfNotPresent is correct
checkov.io/skip4: CKV_K8S_9=The sidecar has no readiness probe on purpose - a store outage must not remove all endpoints
checkov.io/skip5: CKV_K8S_8=Init containers and the geo updater serve no traffic and need no liveness probe
{{- end -}}
