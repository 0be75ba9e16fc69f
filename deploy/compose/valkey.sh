# Starts the store for docker-compose.yaml. Passes the password's SHA-256 on standard input,
# so that the hash is neither on a command line nor in a file.
set -eu
hash=$(tr -d '\r\n' </run/secrets/store-password | sha256sum | cut -d ' ' -f 1)
exec valkey-server --dir /data --appendonly yes --appendfsync everysec --save '' --maxmemory-policy noeviction - <<EOF
user default reset on ~* &* +@all #$hash
EOF
