{{/* Files of the bundled store: configuration, start script, readiness and liveness scripts. */}}
{{- define "ip-lookup.valkeyFiles" -}}
valkey.conf: |
  port 6379
  bind * -::*
  dir /data
  # Accounts and keys are not a cache: when memory is full, writes fail and nothing is evicted.
  maxmemory {{ .Values.valkey.maxMemory }}
  maxmemory-policy noeviction
  appendonly yes
  appendfsync everysec
  save ""
  # Disables the commands that delete all data.
  rename-command FLUSHALL ""
  rename-command FLUSHDB ""
  {{- with .Values.valkey.extraConfig }}
  {{- trim . | nindent 2 }}
  {{- end }}
# Passes the users on standard input, so that the hashes of their passwords are neither on a command line nor in a file.
# The user of the dashboard pods is `default`, also that of the lookup pods if the Secret has only one password.
# docs/redis.md explains the permissions.
start.sh: |
  set -eu
  hash() {
    [ -s "$1" ] || { echo "$1 is missing or empty" >&2; exit 1; }
    tr -d '\r\n' <"$1" | sha256sum | cut -d ' ' -f 1
  }
  full=$(hash /run/secrets/store/password)
  {{- if include "ip-lookup.lookupPasswordKey" . }}
  lookup=$(hash /run/secrets/store/lookup-password)
  {{- end }}
  {{- if .Values.valkey.exporter.enabled }}
  exporter=$(hash /run/secrets/exporter/password)
  {{- end }}
  exec valkey-server /etc/valkey/valkey.conf - <<EOF
  user default reset on #$full {{ include "ip-lookup.aclFull" . }}
  {{- if include "ip-lookup.lookupPasswordKey" . }}
  user lookup reset on #$lookup {{ include "ip-lookup.aclLookup" . }}
  {{- end }}
  {{- if .Values.valkey.exporter.enabled }}
  user exporter reset on #$exporter resetchannels -@all +ping +info +client|setname +slowlog|len +latency|latest +latency|histogram
  {{- end }}
  EOF
ready.sh: |
  REDISCLI_AUTH=$(tr -d '\r\n' </run/secrets/store/password) exec valkey-cli -p 6379 -e ping
# Any reply will do, also an error such as LOADING. A server that hangs accepts connections and replies to none.
alive.sh: |
  [ -n "$(timeout 5 valkey-cli -p 6379 ping)" ]
{{- end -}}

{{- define "ip-lookup.valkeyProbes" -}}
startupProbe:
  exec: {command: [sh, /etc/valkey/ready.sh]}
  periodSeconds: 1
  timeoutSeconds: 5
  # Loading a large append-only file takes time.
  failureThreshold: 300
readinessProbe:
  exec: {command: [sh, /etc/valkey/ready.sh]}
  periodSeconds: 5
  timeoutSeconds: 5
livenessProbe:
  exec: {command: [sh, /etc/valkey/alive.sh]}
  periodSeconds: 10
  # Longer than the script's own timeout.
  timeoutSeconds: 8
  failureThreshold: 3
{{- end -}}

{{/* Secret with the passwords of the bundled Valkey. */}}
{{- define "ip-lookup.valkeySecret" -}}
{{- default (printf "%s-store" (include "ip-lookup.fullname" .)) .Values.valkey.existingSecret -}}
{{- end -}}

{{/* Entry in that Secret with the password of the user `lookup`; empty if lookup pods have no user of their own,
because an existing Secret may have only one password. */}}
{{- define "ip-lookup.lookupPasswordKey" -}}
{{- if not .Values.valkey.existingSecret -}}
{{- default "lookup-password" .Values.valkey.lookupPasswordKey -}}
{{- else -}}
{{- .Values.valkey.lookupPasswordKey -}}
{{- end -}}
{{- end -}}

{{/* Permissions of a quota-svc that serves all operations. */}}
{{- define "ip-lookup.aclFull" -}}
~{{ .Values.quota.keyPrefix }}2:* resetchannels -@all +evalsha +eval +time +ping +info +wait +role +select +get +set +getrange +setrange +strlen +exists +del +hget +hset +hdel +hgetall +sadd +srem +sscan +scard +lpush +lpushx +rpush +rpop +lrem +lset +lpos +ltrim +lrange +zadd +zrem +zcard +zrangebyscore +cluster|slots +asking +waitaof
{{- end -}}

{{/* Permissions of a quota-svc that serves only charges: records, announcements and the demo's counter. */}}
{{- define "ip-lookup.aclLookup" -}}
{{- $prefix := printf "~%s2:" .Values.quota.keyPrefix -}}
{{ $prefix }}*:k {{ $prefix }}*:n {{ $prefix }}{demo}:d resetchannels -@all +evalsha +eval +time +ping +info +role +select +get +set +getrange +setrange +lpushx +rpush +rpop +cluster|slots +asking
{{- end -}}

{{/* Checksum of what a running Valkey has read: the configuration and the users, without comments. */}}
{{- define "ip-lookup.valkeyChecksum" -}}
{{- $files := include "ip-lookup.valkeyFiles" . | fromYaml -}}
{{- regexReplaceAll "(?m)^ *#.*\n" (printf "%s%s" (get $files "valkey.conf") (get $files "start.sh")) "" | sha256sum -}}
{{- end -}}

{{/* Secret with the exporter's password. */}}
{{- define "ip-lookup.exporterSecret" -}}
{{- default (printf "%s-exporter" (include "ip-lookup.fullname" .)) .Values.valkey.exporter.existingSecret -}}
{{- end -}}

{{- define "ip-lookup.valkeyCheck" -}}
{{- $valkey := .Values.valkey -}}
{{- with dig "limits" "memory" "" $valkey.resources -}}
{{- if ge (include "ip-lookup.bytes" $valkey.maxMemory | float64) (include "ip-lookup.bytes" . | float64) -}}
{{- fail (printf "valkey.maxMemory %s must be below the memory limit %v in valkey.resources, with room for rewriting the append-only file" $valkey.maxMemory .) -}}
{{- end -}}
{{- end -}}
{{- if and $valkey.backup.enabled (not .Values.quota.nativeSidecar) -}}
{{- fail "valkey.backup needs quota.nativeSidecar=true: with a plain second container, its Job would never end" -}}
{{- end -}}
{{- end -}}
