{{/* Geo data: the updater as an init container and as a sidecar, and the volume they write to. */}}

{{/* "true" if the provider's databases are downloaded, else empty. */}}
{{- define "ip-lookup.geoDownloads" -}}
{{- if has .Values.geo.provider (list "dbip-lite" "maxmind" "ipinfo" "url") -}}true{{- end -}}
{{- end -}}

{{- define "ip-lookup.geoCheck" -}}
{{- $geo := .Values.geo -}}
{{- if and (has $geo.provider (list "maxmind" "ipinfo")) (not $geo.acceptLicense) -}}
{{- fail (printf "geo.provider %s: read the provider's license and set geo.acceptLicense=true" $geo.provider) -}}
{{- end -}}
{{- if and (has $geo.provider (list "maxmind" "ipinfo")) (not $geo.existingSecret) -}}
{{- fail (printf "geo.provider %s needs its credentials: set geo.existingSecret" $geo.provider) -}}
{{- end -}}
{{- if and (eq $geo.provider "url") (not $geo.url) -}}{{- fail "geo.provider url needs geo.url" -}}{{- end -}}
{{- if and (eq $geo.provider "existingClaim") (not $geo.existingClaim) -}}{{- fail "geo.provider existingClaim needs geo.existingClaim" -}}{{- end -}}
{{- end -}}

{{/* A container that runs geo-update, once or repeatedly. Argument: (list $ "name" whether-to-repeat) */}}
{{- define "ip-lookup.geoContainer" -}}
{{- $root := index . 0 -}}{{- $geo := $root.Values.geo -}}{{- $refresh := index . 2 -}}
- name: {{ index . 1 }}
  image: {{ include "ip-lookup.image" (list $root $root.Values.lookup.image) }}
  imagePullPolicy: {{ $root.Values.imagePullPolicy }}
  {{- if and $refresh $root.Values.quota.nativeSidecar }}
  restartPolicy: Always
  {{- end }}
  args:
    - geo-update
    - --to=/var/lib/geo
    {{- if $refresh }}
    - {{ printf "--every=%v" ($geo.updateEvery) | quote }}
    {{- end }}
    {{- with $geo.editions }}
    - {{ printf "--editions=%v" (join "," .) | quote }}
    {{- end }}
    {{- if $geo.acceptLicense }}
    - --accept-license
    {{- end }}
    {{- if eq $geo.provider "maxmind" }}
    - --maxmind-account-id-file=/run/secrets/geo/account-id
    - --maxmind-license-key-file=/run/secrets/geo/license-key
    {{- else if eq $geo.provider "ipinfo" }}
    - --ipinfo-token-file=/run/secrets/geo/token
    {{- end }}
    {{- if and (eq $geo.provider "url") $geo.sha256 }}
    - {{ printf "--sha256=%v" ($geo.sha256) | quote }}
    {{- end }}
    - {{ ternary $geo.url $geo.provider (eq $geo.provider "url") | quote }}
  resources:
    {{- toYaml $geo.resources | nindent 4 }}
  securityContext:
    {{- include "ip-lookup.containerSecurity" $root | nindent 4 }}
  volumeMounts:
    - {name: geo, mountPath: /var/lib/geo}
    {{- if has $geo.provider (list "maxmind" "ipinfo") }}
    - {name: geo-credentials, mountPath: /run/secrets/geo, readOnly: true}
    {{- end }}
{{- end -}}

{{- define "ip-lookup.geoVolumes" -}}
{{- $geo := .Values.geo -}}
{{- if include "ip-lookup.geoDownloads" . }}
- name: geo
  emptyDir:
    sizeLimit: {{ $geo.volumeSize }}
{{- else if eq $geo.provider "existingClaim" }}
- name: geo
  persistentVolumeClaim:
    claimName: {{ $geo.existingClaim }}
    readOnly: true
{{- end }}
{{- if has $geo.provider (list "maxmind" "ipinfo") }}
- name: geo-credentials
  secret:
    secretName: {{ $geo.existingSecret }}
    defaultMode: 0440
    items:
      {{- if eq $geo.provider "maxmind" }}
      - {key: {{ $geo.secretKeys.accountId | quote }}, path: account-id}
      - {key: {{ $geo.secretKeys.licenseKey | quote }}, path: license-key}
      {{- else }}
      - {key: {{ $geo.secretKeys.token | quote }}, path: token}
      {{- end }}
{{- end }}
{{- end -}}

{{/* Attribution that the geo data's license requires, as TEXT=URL. */}}
{{- define "ip-lookup.attribution" -}}
{{- if eq .Values.geo.provider "dbip-lite" -}}
IP Geolocation by DB-IP=https://db-ip.com
{{- else if eq .Values.geo.provider "maxmind" -}}
This product includes GeoLite2 data created by MaxMind=https://www.maxmind.com
{{- else if eq .Values.geo.provider "ipinfo" -}}
IP address data powered by IPinfo=https://ipinfo.io
{{- end -}}
{{- end -}}
