{{/* Files of the bundled store: configuration, start script and readiness script. */}}
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
# Passes the password's SHA-256 on standard input, so that the hash is neither on a command line nor in a file.
start.sh: |
  set -eu
  hash=$(tr -d '\r\n' </run/secrets/store/password | sha256sum | cut -d ' ' -f 1)
  exec valkey-server /etc/valkey/valkey.conf - <<EOF
  user default reset on ~* &* +@all #$hash
  EOF
ready.sh: |
  REDISCLI_AUTH=$(tr -d '\r\n' </run/secrets/store/password) exec valkey-cli -p 6379 -e ping
{{- end -}}
