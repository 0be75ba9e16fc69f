#!/bin/sh
# Creates the secrets for docker-compose.yaml if they are missing: the passwords of the two store users,
# the tokens of the two quota-svc, the dashboard's session key and a certificate for localhost. Run it again after an
# upgrade.
set -eu
cd "$(dirname "$0")"
mkdir -p secrets
# Keeps out other users of this machine, whatever the modes of the files are.
chmod 700 secrets
[ -s secrets/store-password ] || openssl rand -hex 24 >secrets/store-password
[ -s secrets/store-lookup-password ] || openssl rand -hex 24 >secrets/store-lookup-password
[ -s secrets/quota-token ] || openssl rand -hex 24 >secrets/quota-token
[ -s secrets/quota-charges-token ] || openssl rand -hex 24 >secrets/quota-charges-token
[ -s secrets/session-key ] || openssl rand 48 >secrets/session-key
if [ ! -s secrets/tls.pem ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 365 -subj /CN=localhost \
        -addext subjectAltName=DNS:localhost,DNS:dashboard.localhost -keyout secrets/tls.key -out secrets/tls.crt 2>/dev/null
    cat secrets/tls.crt secrets/tls.key >secrets/tls.pem
    rm secrets/tls.crt secrets/tls.key
fi
# Compose mounts the files with the owner and mode that they have here, and the containers run as three different users.
# Root can give the files to the group that all containers have (65532). Other users can't, so the files become readable
# by everyone in the containers; the services then warn at start.
if chgrp 65532 secrets/* 2>/dev/null; then chmod 640 secrets/*; else chmod 644 secrets/*; fi
