# Starts the store of docker-compose.yaml; the password reaches it on standard input as its SHA-256.
set -eu
hash=$(tr -d '\r\n' </run/secrets/store-password | sha256sum | cut -d ' ' -f 1)
exec valkey-server --dir /data --appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction - <<EOF
user default reset on ~* &* +@all #$hash
EOF
