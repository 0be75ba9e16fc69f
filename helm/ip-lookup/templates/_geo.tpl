{{/* Geo data: the updater, and the volume that it writes to. */}}

{{/* The container that downloads databases: `geo-refresh` in each lookup pod, or `geo-update` in the CronJob that fills
the shared volume. Empty if nothing is downloaded. */}}
{{- define "ip-lookup.geoUpdater" -}}
{{- if has .Values.geo.provider (list "dbip-lite" "maxmind" "ipinfo" "url") -}}
{{- ternary "geo-update" "geo-refresh" .Values.geo.shared.enabled -}}
{{- end -}}
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
{{- if and $geo.shared.enabled (has $geo.provider (list "none" "existingClaim")) -}}
{{- fail (printf "geo.shared downloads databases, but geo.provider is %s: set a provider, or geo.shared.enabled=false" $geo.provider) -}}
{{- end -}}
{{- if and $geo.ca.secret $geo.ca.configMap -}}{{- fail "geo.ca.secret and geo.ca.configMap are both set: set only one" -}}{{- end -}}
{{- end -}}

{{/* The largest database, in bytes, that fits everywhere. Both memory limits must fit the database and as much again to
verify it; that of lookup-svc also the database in use, which it replaces. Each has room for the rest of the process.
Kubernetes evicts a pod whose volume is too large: a quarter of it leaves room for old files, new ones and an archive.
Argument: (list $ "name of the updater") */}}
{{- define "ip-lookup.geoMaxSize" -}}
{{- $root := index . 0 -}}
{{- $max := 2147483648 -}}
{{- if eq (index . 1) "geo-refresh" -}}
{{- $max = div (include "ip-lookup.bytes" $root.Values.geo.volumeSize | int64) 4 | min $max -}}
{{- end -}}
{{- range list (list "lookup" 128 3) (list "geo" 64 2) -}}
{{- $name := index . 0 -}}{{- $rest := index . 1 -}}{{- $times := index . 2 -}}
{{- with dig "resources" "limits" "memory" "" (get $root.Values $name) -}}
{{- $max = div (sub (include "ip-lookup.bytes" . | int64) (mul $rest 1048576)) $times | min $max -}}
{{- if le $max 0 -}}
{{- fail (printf "%s.resources.limits.memory %v is too small for a geo database: it must be at least %dMi and %d times the database's size" $name . $rest $times) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $max -}}
{{- end -}}

{{/* The updater. As `geo-refresh`, it repeats downloads forever; as `geo-update`, it downloads once.
Argument: (list $ "name") */}}
{{- define "ip-lookup.geoContainer" -}}
{{- $root := index . 0 -}}{{- $geo := $root.Values.geo -}}{{- $pod := dict -}}
{{- if eq (index . 1) "geo-update" -}}{{- $pod = $geo.shared.pod -}}{{- end -}}
- name: {{ index . 1 }}
  image: {{ include "ip-lookup.image" (list $root $root.Values.lookup.image) }}
  imagePullPolicy: {{ $root.Values.imagePullPolicy }}
  args:
    - geo-update
    - --to=/var/lib/geo
    {{- if eq (index . 1) "geo-refresh" }}
    - {{ printf "--every=%v" ($geo.updateEvery) | quote }}
    {{- end }}
    - --max-size={{ include "ip-lookup.geoMaxSize" . }}
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
  {{- include "ip-lookup.envFrom" $root | nindent 2 }}
  {{- $env := list }}
  {{- range $name, $value := dict "HTTPS_PROXY" $geo.proxy.https "HTTP_PROXY" $geo.proxy.http "NO_PROXY" (join "," $geo.proxy.exceptions) "SSL_CERT_FILE" (ternary "/run/secrets/geo-ca/ca.crt" "" (not (empty (or $geo.ca.secret $geo.ca.configMap)))) }}
  {{- if $value }}{{ $env = append $env (dict "name" $name "value" $value) }}{{ end }}
  {{- end }}
  {{- with concat $env $geo.extraEnv (default list $pod.extraEnv) }}
  env:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- toYaml $geo.resources | nindent 4 }}
  {{- include "ip-lookup.containerSecurity" $root | indent 2 }}
  volumeMounts:
    - {name: geo, mountPath: /var/lib/geo}
    {{- if has $geo.provider (list "maxmind" "ipinfo") }}
    - {name: geo-credentials, mountPath: /run/secrets/geo, readOnly: true}
    {{- end }}
    {{- if or $geo.ca.secret $geo.ca.configMap }}
    - {name: geo-ca, mountPath: /run/secrets/geo-ca, readOnly: true}
    {{- end }}
    {{- with concat $geo.extraVolumeMounts (default list $pod.extraVolumeMounts) }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{/* Volumes of a lookup pod. */}}
{{- define "ip-lookup.geoVolumes" -}}
{{- $geo := .Values.geo -}}{{- $updater := include "ip-lookup.geoUpdater" . -}}
{{- if eq $updater "geo-refresh" }}
- name: geo
  emptyDir:
    sizeLimit: {{ $geo.volumeSize }}
{{- include "ip-lookup.geoSecretVolumes" . }}
{{- else if or $updater (eq $geo.provider "existingClaim") }}
- name: geo
  persistentVolumeClaim:
    claimName: {{ ternary (include "ip-lookup.geoClaim" .) $geo.existingClaim (eq $updater "geo-update") }}
    readOnly: true
{{- end }}
{{- end -}}

{{/* The claim of the shared volume. */}}
{{- define "ip-lookup.geoClaim" -}}
{{- default (printf "%s-geo" (include "ip-lookup.fullname" .)) .Values.geo.shared.existingClaim -}}
{{- end -}}

{{/* Volumes with the provider's credentials and certificate authorities. They are optional, so that a pod starts without
them: the updater logs what is missing and retries, and the kubelet mounts what is created later. */}}
{{- define "ip-lookup.geoSecretVolumes" -}}
{{- $geo := .Values.geo -}}
{{- if has $geo.provider (list "maxmind" "ipinfo") }}
- name: geo-credentials
  secret:
    secretName: {{ $geo.existingSecret }}
    optional: true
    defaultMode: 0440
    items:
      {{- if eq $geo.provider "maxmind" }}
      - {key: {{ $geo.secretKeys.accountId | quote }}, path: account-id}
      - {key: {{ $geo.secretKeys.licenseKey | quote }}, path: license-key}
      {{- else }}
      - {key: {{ $geo.secretKeys.token | quote }}, path: token}
      {{- end }}
{{- end }}
{{- if or $geo.ca.secret $geo.ca.configMap }}
- name: geo-ca
  {{- if $geo.ca.secret }}
  secret:
    secretName: {{ $geo.ca.secret }}
  {{- else }}
  configMap:
    name: {{ $geo.ca.configMap }}
  {{- end }}
    optional: true
    defaultMode: 0440
    items: [{key: {{ $geo.ca.key | quote }}, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* Port of the provider, or of the proxy in front of it. */}}
{{- define "ip-lookup.geoPort" -}}
{{- $geo := .Values.geo -}}
{{- $url := ternary $geo.url "https://provider" (eq $geo.provider "url") -}}
{{- $url = default $url (ternary $geo.proxy.https $geo.proxy.http (hasPrefix "https:" $url)) -}}
{{- $port := regexFind "[0-9]+$" (regexFind ":[0-9]+$" (urlParse $url).host) -}}
{{- default (ternary "443" "80" (hasPrefix "https:" $url)) $port -}}
{{- end -}}

{{/* Attribution that the geo data's license requires, as TEXT=URL. */}}
{{- define "ip-lookup.attribution" -}}
{{- if eq .Values.geo.provider "dbip-lite" -}}
IP Geolocation by DB-IP=https://db-ip.com
{{- else if eq .Values.geo.provider "maxmind" -}}
{{- /* Paid editions have another license than GeoLite. */ -}}
{{- if or (not .Values.geo.editions) (contains "GeoLite" (join "," .Values.geo.editions)) -}}
This product includes GeoLite Data created by MaxMind, available from https://www.maxmind.com=https://www.maxmind.com
{{- else -}}
IP geolocation by MaxMind GeoIP=https://www.maxmind.com
{{- end -}}
{{- else if eq .Values.geo.provider "ipinfo" -}}
IP address data powered by IPinfo=https://ipinfo.io
{{- end -}}
{{- end -}}
