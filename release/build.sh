#!/usr/bin/env bash
# Builds the four programs for a release: release/build.sh ARCH DIR
# ARCH is x86_64 or aarch64. The programs are static, so they run on any Linux distribution. Needs the Rust target
# ARCH-unknown-linux-musl and musl-gcc; for another architecture than this machine's, also a compiler for that
# architecture (CC_ARCH_unknown_linux_musl and CARGO_TARGET_ARCH_UNKNOWN_LINUX_MUSL_LINKER).
set -euo pipefail

if (($# != 2)) || [[ $1 != x86_64 && $1 != aarch64 ]]; then
    echo "usage: release/build.sh x86_64|aarch64 DIR" >&2
    exit 2
fi
target=$1-unknown-linux-musl
mkdir -p "$2"
dir=$(cd "$2" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build() { cargo build --profile dist --locked --target "$target" "$@"; }

# Two commands, as in the Dockerfile: in one, ip-lookup would get the features of the services, such as the Kubernetes
# client.
build -p lookup-svc -p quota-svc -p dashboard-api
build -p standalone

built=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys
print(json.load(sys.stdin)["target_directory"])')/$target/dist
install -m 755 "$built"/{ip-lookup,lookup-svc,quota-svc,dashboard-api} "$dir"
