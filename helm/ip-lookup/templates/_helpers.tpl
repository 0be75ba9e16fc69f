{{/* Names, labels, images and settings shared by all pods. */}}

{{- define "ip-lookup.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Prefix of all names. Services need a name that starts with a letter and has no dot. */}}
{{- define "ip-lookup.fullname" -}}
{{- $name := printf "%s-%s" .Release.Name (include "ip-lookup.name" .) -}}
{{- if .Values.fullnameOverride -}}
{{- $name = .Values.fullnameOverride -}}
{{- else if contains (include "ip-lookup.name" .) .Release.Name -}}
{{- $name = .Release.Name -}}
{{- end -}}
{{- $name = $name | trunc 40 | trimSuffix "-" -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%q can't be part of a Service's name: it must start with a letter and contain only lower case letters, digits and hyphens. Choose another release name or set fullnameOverride" $name) -}}
{{- end -}}
{{- $name -}}
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
{{- include "ip-lookup.labelCheck" . }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Rejects labels that the chart sets itself, because its selectors and Helm rely on them. Argument: the labels */}}
{{- define "ip-lookup.labelCheck" -}}
{{- range $label, $_ := . -}}
{{- if regexMatch "^(app\\.kubernetes\\.io/(name|instance|component|part-of|version|managed-by)|helm\\.sh/chart)$" $label -}}
{{- fail (printf "commonLabels and podLabels must not contain %s: the chart sets it" $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Labels of a pod. No version: a changed label would restart the pods of an unchanged program.
Argument: (list $ "component" labels) */}}
{{- define "ip-lookup.podLabels" -}}
{{ include "ip-lookup.selector" . }}
{{- with index . 2 }}
{{- include "ip-lookup.labelCheck" . }}
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

{{/* Argument: (list $ image), or (list $ image "the value with the image") for an image that has its own versions */}}
{{- define "ip-lookup.image" -}}
{{- $root := index . 0 -}}{{- $image := index . 1 -}}
{{- $name := $image.repository -}}
{{- with $root.Values.global.imageRegistry -}}{{- $name = printf "%s/%s" (trimSuffix "/" .) $name -}}{{- end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $name $image.digest -}}
{{- else if $image.tag -}}
{{- printf "%s:%s" $name $image.tag -}}
{{- else if gt (len .) 2 -}}
{{- fail (printf "%s.tag is empty: set a tag or a digest" (index . 2)) -}}
{{- else -}}
{{- printf "%s:%s" $name $root.Chart.AppVersion -}}
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
{{- with .Values.containerSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of every pod. Argument: (list $ scheduling-options) */}}
{{- define "ip-lookup.podSettings" -}}
{{- $values := (index . 0).Values -}}{{- $options := index . 1 -}}
# A container that needs the Kubernetes API gets its own token (see the volume kube-api).
automountServiceAccountToken: false
# Prevents a Service whose name matches a flag from setting that flag's environment variable.
enableServiceLinks: false
{{- with $values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- range $field, $setting := dict "imagePullSecrets" $values.global.imagePullSecrets "dnsConfig" $values.dnsConfig "hostAliases" $values.hostAliases "nodeSelector" $options.nodeSelector "tolerations" $options.tolerations "affinity" $options.affinity }}
{{- with $setting }}
{{ $field }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $options.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/* Settings of a pod with a ServiceAccount. Argument: (list $ "component" scheduling-options) */}}
{{- define "ip-lookup.podBasics" -}}
serviceAccountName: {{ include "ip-lookup.serviceAccount" (list (index . 0) (index . 1)) }}
{{ include "ip-lookup.podSettings" (list (index . 0) (index . 2)) }}
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

{{- define "ip-lookup.drainSeconds" -}}
{{- $drain := .Values.shutdown.drainSeconds -}}
{{- if kindIs "string" $drain -}}{{- $drain = (include "ip-lookup.edge" . | fromYaml).drainSeconds -}}{{- end -}}
{{- int $drain -}}
{{- end -}}

{{/* Seconds from SIGTERM to SIGKILL: the service's maximum shutdown time, plus time for the sidecar to stop after it. */}}
{{- define "ip-lookup.terminationSeconds" -}}
{{- add (include "ip-lookup.drainSeconds" .) .Values.shutdown.graceSeconds 10 -}}
{{- end -}}

{{/* The number of bytes of a quantity: Kubernetes units (Mi, M) or Valkey's (mb). */}}
{{- define "ip-lookup.bytes" -}}
{{- $text := ternary (printf "%.0f" .) (toString .) (kindIs "float64" .) -}}
{{- $factors := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "kb" 1024 "Mi" 1048576 "mb" 1048576 "Gi" 1073741824 "gb" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (get $factors (regexFind "[A-Za-z]*$" $text)) | printf "%.0f" -}}
{{- end -}}

{{- define "ip-lookup.apiUrl" -}}
{{- default (printf "https://%s%s" .Values.hosts.api (include "ip-lookup.portSuffix" .)) .Values.urls.api -}}
{{- end -}}

{{- define "ip-lookup.dashboardUrl" -}}
{{- default (printf "https://%s%s" .Values.hosts.dashboard (include "ip-lookup.portSuffix" .)) .Values.urls.dashboard -}}
{{- end -}}

{{/* Number of pods of a Deployment. An autoscaler sets it: an upgrade keeps the number that is running, because without one
Kubernetes would fall back to a single pod. Argument: (list $ NAME .Values.COMPONENT) */}}
{{- define "ip-lookup.replicas" -}}
{{- $scaling := (index . 2).autoscaling -}}
{{- if $scaling.enabled -}}
{{- $running := lookup "apps/v1" "Deployment" (index . 0).Release.Namespace (index . 1) | default dict -}}
{{- min (int $scaling.maxReplicas) (max (int $scaling.minReplicas) (dig "spec" "replicas" 0 $running | int)) -}}
{{- else -}}
{{- (index . 2).replicaCount -}}
{{- end -}}
{{- end -}}

{{/* Probes of a container with this admin port. The sidecar has no readiness probe: a store outage must not remove
all endpoints from the Service. Argument: (list "port" failures-until-not-ready overrides), the second 0 for no readiness
probe */}}
{{- define "ip-lookup.probes" -}}
{{- mergeOverwrite (include "ip-lookup.defaultProbes" . | fromYaml) (index . 2) | toYaml -}}
{{- end -}}

{{- define "ip-lookup.defaultProbes" -}}
{{- $port := index . 0 -}}
startupProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  periodSeconds: 1
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: {{ $port }}}
  failureThreshold: 3
  {{- if index . 1 }}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ index . 1 }}
  {{- else }}
  # While the sidecar hangs, every lookup of its pod fails. A hung process does not react to SIGTERM.
  periodSeconds: 2
  timeoutSeconds: 2
  terminationGracePeriodSeconds: 1
  {{- end }}
{{- end -}}

{{/* After how many failed readiness probes, one every 2 s, a pod of a service is not ready. With the profile direct, only
after the drain delay: a node whose last pod terminates gets connections until the load balancer's health check has
noticed it, and kube-proxy forwards them only to a pod that is still ready. */}}
{{- define "ip-lookup.readinessFailures" -}}
{{- if eq .Values.edge.profile "direct" -}}
{{- add 1 (div (include "ip-lookup.drainSeconds" . | int) 2) -}}
{{- else -}}
1
{{- end -}}
{{- end -}}

{{/* Update strategy of a Deployment. Kubernetes rejects the default's `rollingUpdate` with the type `Recreate`.
Argument: the strategy */}}
{{- define "ip-lookup.strategy" -}}
{{- eq .type "RollingUpdate" | ternary . (omit . "rollingUpdate") | toYaml -}}
{{- end -}}

{{/* Rejects most schedules that Kubernetes would reject; it does not compare the ends of a range. Argument: (list "the value's name" "schedule") */}}
{{- define "ip-lookup.scheduleCheck" -}}
{{- $name := index . 0 -}}{{- $schedule := index . 1 -}}
{{- if not (hasPrefix "@" $schedule) -}}
{{- $numbers := list "[0-5]?[0-9]" "([01]?[0-9]|2[0-3])" "(0?[1-9]|[12][0-9]|3[01])" "(?i:0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)" "(?i:[0-6]|sun|mon|tue|wed|thu|fri|sat)" -}}
{{- range $index, $field := splitList " " $schedule -}}
{{- $number := index $numbers $index -}}
{{- $item := printf "(\\*|\\?|%s(-%s)?)(/[1-9][0-9]*)?" $number $number -}}
{{- if not (regexMatch (printf "^%s(,%s)*$" $item $item) $field) -}}
{{- fail (printf "%s: %q is not a valid schedule: %q is not a valid %s" $name $schedule $field (index (list "minute" "hour" "day of the month" "month" "day of the week (0 to 6)") $index)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A PersistentVolumeClaim. Once created, it stays in the release even while it is unused. Otherwise a `helm rollback` to a
revision that has it fails, because the claim still exists outside of the release: kept by its policy, or not deleted yet
because a pod uses it. `helm template` can't look it up and omits it. Argument: (list $ "component" "name" is-used options annotations) */}}
{{- define "ip-lookup.claim" -}}
{{- $root := index . 0 -}}{{- $options := index . 4 -}}
{{- $spec := dict "accessModes" (default (list "ReadWriteOnce") $options.accessModes) "resources" (dict "requests" (dict "storage" $options.size)) -}}
{{- with $options.storageClass -}}{{- $_ := set $spec "storageClassName" . -}}{{- end -}}
{{- if not (index . 3) -}}
{{- $existing := lookup "v1" "PersistentVolumeClaim" $root.Release.Namespace (index . 2) | default dict -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $existing -}}
{{- $spec = ternary (pick (default dict $existing.spec) "accessModes" "storageClassName" "resources") dict (eq $owner $root.Release.Name) -}}
{{- end -}}
{{- with $spec }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  {{- include "ip-lookup.metadata" (list $root (index $ 1) (index $ 2)) | nindent 2 }}
  {{- with index $ 5 }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Data of the ConfigMap. */}}
{{- define "ip-lookup.config" -}}
IP_LOOKUP_LOG_FORMAT: {{ .Values.log.format | quote }}
IP_LOOKUP_LOG_LEVEL: {{ .Values.log.level | quote }}
{{- with .Values.otel.endpoint }}
OTEL_EXPORTER_OTLP_ENDPOINT: {{ . | quote }}
{{- end }}
{{- range $name, $value := .Values.otel.env }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* Shared environment variables, from the ConfigMap. */}}
{{- define "ip-lookup.envFrom" -}}
envFrom:
  - configMapRef:
      name: {{ include "ip-lookup.fullname" . }}
{{- end -}}
