{{/* quota-svc, the sidecar of lookup-svc and dashboard-api, and its store. */}}

{{/* Secret with the store's password, as YAML; the name is empty if there is no password. */}}
{{- define "ip-lookup.storeSecret" -}}
{{- if .Values.valkey.enabled -}}
name: {{ default (printf "%s-store" (include "ip-lookup.fullname" .)) .Values.valkey.existingSecret }}
key: {{ .Values.valkey.passwordKey }}
{{- else if .Values.externalRedis.existingSecret -}}
name: {{ .Values.externalRedis.existingSecret }}
key: {{ .Values.externalRedis.passwordKey }}
{{- else if .Values.externalRedis.password -}}
name: {{ include "ip-lookup.fullname" . }}-store
key: password
{{- else -}}
name: ""
{{- end -}}
{{- end -}}

{{/* User and Secret entry with which a sidecar connects to the store, as YAML. With the bundled Valkey, a sidecar that
serves only charges has its own user. Argument: (list $ "charges") or (list $ "all") */}}
{{- define "ip-lookup.storeUser" -}}
{{- $root := index . 0 -}}
{{- $secret := include "ip-lookup.storeSecret" $root | fromYaml -}}
{{- $lookupKey := include "ip-lookup.lookupPasswordKey" $root -}}
{{- $user := dict "secret" $secret.name "key" ($secret.key | default "") "username" "" -}}
{{- if not $root.Values.valkey.enabled -}}
{{- $_ := set $user "username" $root.Values.externalRedis.username -}}
{{- else if and (eq (index . 1) "charges") $lookupKey -}}
{{- $_ := set $user "username" "lookup" -}}
{{- $_ := set $user "key" $lookupKey -}}
{{- end -}}
{{- toYaml $user -}}
{{- end -}}

{{- define "ip-lookup.storeUrl" -}}
{{- if and .Values.valkey.enabled .Values.externalRedis.url -}}
{{- fail "externalRedis.url and valkey.enabled=true are both set: set valkey.enabled=false to use your own Redis" -}}
{{- else if .Values.valkey.enabled -}}
redis://{{ include "ip-lookup.fullname" . }}-valkey:6379/0
{{- else if .Values.externalRedis.url -}}
{{- .Values.externalRedis.url -}}
{{- else -}}
{{- fail "no store configured: set externalRedis.url or valkey.enabled=true" -}}
{{- end -}}
{{- end -}}

{{/* Argument: (list $ "charges") or (list $ "all") */}}
{{- define "ip-lookup.storeVolumes" -}}
{{- $values := (index . 0).Values -}}
{{- $user := include "ip-lookup.storeUser" . | fromYaml -}}
{{- if $user.secret }}
- name: store-password
  secret:
    secretName: {{ $user.secret }}
    defaultMode: 0440
    items: [{key: {{ $user.key | quote }}, path: password}]
{{- end }}
{{- if and (not $values.valkey.enabled) $values.externalRedis.tls.caSecret }}
- name: store-ca
  secret:
    secretName: {{ $values.externalRedis.tls.caSecret }}
    defaultMode: 0440
    items: [{key: {{ $values.externalRedis.tls.caKey | quote }}, path: ca.crt}]
{{- end }}
{{- end -}}

{{/* Volume with the token of a sidecar. Both containers of the pod mount it. A sidecar that serves only charges has its
own token, so that the token of a lookup pod is of no use elsewhere. Argument: (list $ "charges") or (list $ "all") */}}
{{- define "ip-lookup.quotaTokenVolume" -}}
{{- $token := (index . 0).Values.quota.token -}}
- name: quota-token
  secret:
    secretName: {{ default (printf "%s-quota" (include "ip-lookup.fullname" (index . 0))) $token.existingSecret }}
    defaultMode: 0440
    items: [{key: {{ ternary $token.chargesKey $token.fullKey (eq (index . 1) "charges") | quote }}, path: token}]
{{- end -}}

{{- define "ip-lookup.quotaTokenMount" -}}
- {name: quota-token, mountPath: /run/secrets/quota, readOnly: true}
{{- end -}}

{{/* An environment variable, not a flag: commands that `kubectl exec` runs in the container need it, too. */}}
{{- define "ip-lookup.quotaTokenEnv" -}}
- {name: IP_LOOKUP_QUOTA_TOKEN_FILE, value: /run/secrets/quota/token}
{{- end -}}

{{/* The sidecar container. Argument: (list $ "charges") or (list $ "all"), for the flag --serve */}}
{{- define "ip-lookup.quotaContainer" -}}
{{- $root := index . 0 -}}{{- $values := $root.Values -}}
{{- $user := include "ip-lookup.storeUser" . | fromYaml -}}
- name: quota-svc
  image: {{ include "ip-lookup.image" (list $root $values.quota.image) }}
  imagePullPolicy: {{ $values.imagePullPolicy }}
  {{- if $values.quota.nativeSidecar }}
  restartPolicy: Always
  {{- end }}
  args:
    - --listen=127.0.0.1:8082
    - {{ printf "--admin-listen=%s:9082" (include "ip-lookup.listenAddress" $root) | quote }}
    - {{ printf "--serve=%v" (index . 1) | quote }}
    - {{ printf "--redis-url=%v" (include "ip-lookup.storeUrl" $root) | quote }}
    {{- if $user.secret }}
    - --redis-password-file=/run/secrets/store/password
    {{- end }}
    {{- with $user.username }}
    - {{ printf "--redis-username=%v" (.) | quote }}
    {{- end }}
    {{- if and (not $values.valkey.enabled) $values.externalRedis.tls.caSecret }}
    - --redis-ca-file=/run/secrets/redis-ca/ca.crt
    {{- end }}
    - {{ printf "--key-prefix=%v" ($values.quota.keyPrefix) | quote }}
    - {{ printf "--daily-limit=%v" (int64 $values.quota.dailyLimit) | quote }}
    - {{ printf "--burst-limit=%v" (int64 $values.quota.burstLimit) | quote }}
    - {{ printf "--demo-limit=%v" (int64 $values.quota.demoLimit) | quote }}
    {{- if $values.quota.nativeSidecar }}
    # Kubernetes stops a native sidecar after the main containers.
    - --drain-delay=0s
    - --grace=5s
    {{- else }}
    # A plain container gets SIGTERM at the same time as the others and must outlive them.
    - {{ printf "--drain-delay=%vs" (add (include "ip-lookup.drainSeconds" $root) $values.shutdown.graceSeconds) | quote }}
    - --grace=5s
    {{- end }}
    {{- with $values.quota.extraArgs }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- include "ip-lookup.envFrom" $root | nindent 2 }}
  env:
    {{- include "ip-lookup.quotaTokenEnv" $root | nindent 4 }}
    {{- with $values.quota.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    - {name: quota-admin, containerPort: 9082, protocol: TCP}
  {{- include "ip-lookup.probes" (list "quota-admin" 0) | nindent 2 }}
  resources:
    {{- toYaml $values.quota.resources | nindent 4 }}
  {{- include "ip-lookup.containerSecurity" $root | indent 2 }}
  {{- $mounts := list }}
  {{- if $user.secret }}{{ $mounts = append $mounts (dict "name" "store-password" "mountPath" "/run/secrets/store" "readOnly" true) }}{{ end }}
  {{- if and (not $values.valkey.enabled) $values.externalRedis.tls.caSecret }}{{ $mounts = append $mounts (dict "name" "store-ca" "mountPath" "/run/secrets/redis-ca" "readOnly" true) }}{{ end }}
  volumeMounts:
    {{- include "ip-lookup.quotaTokenMount" $root | nindent 4 }}
    {{- with concat $mounts $values.quota.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
