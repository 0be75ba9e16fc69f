{{/* quota-svc, the sidecar of lookup-svc and dashboard-api, and its store. */}}

{{/* "true" if the pods use the bundled Valkey. With externalRedis.url they use that Redis, and valkey.enabled only keeps
Valkey running. */}}
{{- define "ip-lookup.usesValkey" -}}
{{- if not .Values.externalRedis.url -}}
{{- if not .Values.valkey.enabled -}}
{{- fail "no store configured: set externalRedis.url or valkey.enabled=true" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* URL, user and password of the store for a sidecar, as YAML. The name of the Secret is empty if there is no password.
With the bundled Valkey, a sidecar that serves only charges has its own user. Argument: (list $ "charges") or (list $ "all") */}}
{{- define "ip-lookup.store" -}}
{{- $root := index . 0 -}}{{- $values := $root.Values -}}
{{- $fullname := include "ip-lookup.fullname" $root -}}
{{- $external := $values.externalRedis -}}
{{- $store := dict "url" $external.url "username" $external.username "secret" $external.existingSecret "key" $external.passwordKey "caSecret" $external.tls.caSecret -}}
{{- if include "ip-lookup.usesValkey" $root -}}
{{- $lookupKey := include "ip-lookup.lookupPasswordKey" $root -}}
{{- $store = dict "url" (printf "redis://%s-valkey:6379/0" $fullname) "username" "" "secret" (include "ip-lookup.valkeySecret" $root) "key" $values.valkey.passwordKey "caSecret" "" -}}
{{- if and (eq (index . 1) "charges") $lookupKey -}}
{{- $store = merge (dict "username" "lookup" "key" $lookupKey) $store -}}
{{- end -}}
{{- else if and $external.password (not $external.existingSecret) -}}
{{- $store = merge (dict "secret" (printf "%s-external-redis" $fullname) "key" "password") $store -}}
{{- end -}}
{{- toYaml $store -}}
{{- end -}}

{{/* Argument: (list $ "charges") or (list $ "all") */}}
{{- define "ip-lookup.storeVolumes" -}}
{{- $store := include "ip-lookup.store" . | fromYaml -}}
{{- if $store.secret }}
- name: store-password
  secret:
    secretName: {{ $store.secret }}
    defaultMode: 0440
    items: [{key: {{ $store.key | quote }}, path: password}]
{{- end }}
{{- if $store.caSecret }}
- name: store-ca
  secret:
    secretName: {{ $store.caSecret }}
    defaultMode: 0440
    items: [{key: {{ (index . 0).Values.externalRedis.tls.caKey | quote }}, path: ca.crt}]
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
{{- $store := include "ip-lookup.store" . | fromYaml -}}
- name: quota-svc
  image: {{ include "ip-lookup.image" (list $root $values.quota.image) }}
  imagePullPolicy: {{ $values.imagePullPolicy }}
  {{- if $values.quota.nativeSidecar }}
  restartPolicy: Always
  {{- end }}
  args:
    - --listen=127.0.0.1:8082
    - "--admin-listen=[::]:9082"
    - {{ printf "--serve=%v" (index . 1) | quote }}
    - {{ printf "--redis-url=%v" $store.url | quote }}
    {{- if $store.secret }}
    - --redis-password-file=/run/secrets/store/password
    {{- end }}
    {{- with $store.username }}
    - {{ printf "--redis-username=%v" (.) | quote }}
    {{- end }}
    {{- if $store.caSecret }}
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
  {{- include "ip-lookup.probes" (list "quota-admin" 0 $values.quota.probes) | nindent 2 }}
  resources:
    {{- toYaml $values.quota.resources | nindent 4 }}
  {{- include "ip-lookup.containerSecurity" $root | indent 2 }}
  {{- $mounts := list }}
  {{- if $store.secret }}{{ $mounts = append $mounts (dict "name" "store-password" "mountPath" "/run/secrets/store" "readOnly" true) }}{{ end }}
  {{- if $store.caSecret }}{{ $mounts = append $mounts (dict "name" "store-ca" "mountPath" "/run/secrets/redis-ca" "readOnly" true) }}{{ end }}
  volumeMounts:
    {{- include "ip-lookup.quotaTokenMount" $root | nindent 4 }}
    {{- with concat $mounts $values.quota.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
