{{/* What the bundled store is started with: its settings, how it starts, and how it is found ready. */}}
{{- define "ip-lookup.valkeyFiles" -}}
valkey.conf: |
  port 6379
  bind * -::*
  dir /data
  # Accounts and keys are not a cache: full means an error, never that something is forgotten.
  maxmemory {{ .Values.valkey.maxMemory }}
  maxmemory-policy noeviction
  appendonly yes
  appendfsync everysec
  save ""
  # Nothing may ask the only server to forget or to leave.
  rename-command FLUSHALL ""
  rename-command FLUSHDB ""
# The password reaches the server on standard input as its SHA-256: not on the command line, in no file of ours.
start.sh: |
  set -eu
  hash=$(tr -d '\r\n' </run/secrets/store/password | sha256sum | cut -d ' ' -f 1)
  exec valkey-server /etc/valkey/valkey.conf - <<EOF
  user default reset on ~* &* +@all #$hash
  EOF
ready.sh: |
  REDISCLI_AUTH=$(tr -d '\r\n' </run/secrets/store/password) exec valkey-cli -p 6379 -e ping
{{- end -}}
