#!/usr/bin/env bash
# Builds an image from built programs instead of compiling them: release/image.sh TARGET ARCH DIR [OPTION...]
# TARGET is a target of the Dockerfile, ARCH is x86_64 or aarch64, DIR has the programs of that architecture. OPTIONs are
# passed to `docker buildx build`, such as --load or --label. Images then contain the same bytes as the archives.
set -euo pipefail

usage() {
    echo "usage: release/image.sh TARGET x86_64|aarch64 DIR [OPTION...]" >&2
    exit 2
}
(($# >= 3)) || usage
case $2 in
    x86_64) platform=linux/amd64 ;;
    aarch64) platform=linux/arm64 ;;
    *) usage ;;
esac
target=$1
program=$3/$1
[[ -f $program ]] || { echo "error: $program is missing" >&2; exit 1; }

# A named context replaces the stage of the Dockerfile with the same name, so it has the files that the stage would have.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
install -D -m 755 "$program" "$stage/programs/$target"
install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$stage/out/etc/ssl/certs/ca-certificates.crt"
mkdir "$stage/data"
chmod 755 "$stage"

shift 3
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# BuildKit resolves the base image of `compiler` even though nothing uses that stage then, so it is replaced, too.
contexts=()
for name in compiler build build-ip-lookup; do contexts+=(--build-context "$name=$stage"); done
docker buildx build --platform "$platform" --target "$target" "${contexts[@]}" "$@" .
