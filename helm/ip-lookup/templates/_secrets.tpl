{{/* All Secrets of the release: a YAML map from each name to component and data. The first installation generates passwords, tokens and
keys; upgrades look them up, keep them and add missing entries. Tools that render without a cluster (Argo CD, helm template)
can't look them up and would generate new ones each time: for these tools, set the existingSecret values.

Rendered once and kept in .Values: random values must be the same in the Secrets and in the checksums of the pods. */}}
{{- define "ip-lookup.secrets" -}}
{{- if not (hasKey .Values "renderedSecrets") -}}
{{- $fullname := include "ip-lookup.fullname" . -}}
{{- $secrets := dict -}}
{{- if and .Values.valkey.enabled (not .Values.valkey.existingSecret) -}}
{{- $name := include "ip-lookup.valkeySecret" . -}}
{{- $entries := list .Values.valkey.passwordKey (include "ip-lookup.lookupPasswordKey" .) -}}
{{- $_ := set $secrets $name (dict "component" "valkey" "data" (include "ip-lookup.generated" (list . $name $entries) | fromYaml)) -}}
{{- end -}}
{{- if and .Values.externalRedis.url .Values.externalRedis.password (not .Values.externalRedis.existingSecret) -}}
{{- $data := dict "password" (.Values.externalRedis.password | b64enc) -}}
{{- $_ := set $secrets (printf "%s-external-redis" $fullname) (dict "component" "store" "data" $data) -}}
{{- end -}}
{{- if and .Values.valkey.enabled .Values.valkey.exporter.enabled (not .Values.valkey.exporter.existingSecret) -}}
{{- $name := include "ip-lookup.exporterSecret" . -}}
{{- $data := include "ip-lookup.generated" (list . $name (list "password")) | fromYaml -}}
{{- /* The exporter finds the password by the server's URL. Newer versions include the user in that URL, older ones do not. */ -}}
{{- $urls := dict -}}
{{- range list "exporter@" "" -}}
{{- $_ := set $urls (printf "redis://%s%s-valkey:6379" . $fullname) ($data.password | b64dec) -}}
{{- end -}}
{{- $_ := set $data "passwords.json" ($urls | toJson | b64enc) -}}
{{- $_ := set $secrets $name (dict "component" "valkey-exporter" "data" $data) -}}
{{- end -}}
{{- if not .Values.quota.token.existingSecret -}}
{{- $name := printf "%s-quota" $fullname -}}
{{- $entries := list .Values.quota.token.chargesKey .Values.quota.token.fullKey -}}
{{- $_ := set $secrets $name (dict "component" "quota-svc" "data" (include "ip-lookup.generated" (list . $name $entries) | fromYaml)) -}}
{{- end -}}
{{- if and .Values.dashboard.enabled (not .Values.dashboard.session.existingSecret) -}}
{{- $name := printf "%s-session" $fullname -}}
{{- $entries := list .Values.dashboard.session.key -}}
{{- $_ := set $secrets $name (dict "component" "dashboard-api" "data" (include "ip-lookup.generated" (list . $name $entries) | fromYaml)) -}}
{{- end -}}
{{- $_ := set .Values "renderedSecrets" $secrets -}}
{{- end -}}
{{- toYaml .Values.renderedSecrets -}}
{{- end -}}

{{/* The entries of a Secret, as YAML: those that exist, else random ones. Argument: (list $ name entries) */}}
{{- define "ip-lookup.generated" -}}
{{- $existing := dig "data" dict (lookup "v1" "Secret" (index . 0).Release.Namespace (index . 1) | default dict) -}}
{{- range index . 2 }}
{{ . }}: {{ default (randAlphaNum 64 | b64enc) (get $existing .) }}
{{- end }}
{{- end -}}

{{/* Checksum of the rendered Secrets that a pod uses. If one of them changes, the pod is restarted. Argument: (list $ "component of a Secret" …) */}}
{{- define "ip-lookup.secretsChecksum" -}}
{{- $components := rest . -}}
{{- $data := dict -}}
{{- range $name, $secret := include "ip-lookup.secrets" (index . 0) | fromYaml -}}
{{- if has $secret.component $components }}{{ $_ := set $data $name $secret.data }}{{ end -}}
{{- end -}}
{{- toJson $data | sha256sum -}}
{{- end -}}
