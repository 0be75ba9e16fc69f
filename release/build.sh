#!/usr/bin/env bash
# Builds the four programs for a release: release/build.sh ARCH DIR
# ARCH is x86_64 or aarch64. The programs are static, so they run on any Linux distribution. Needs the Rust target
# ARCH-unknown-linux-musl and musl-gcc; for another architecture than this machine's, also a compiler for that
# architecture (CC_ARCH_unknown_linux_musl and CARGO_TARGET_ARCH_UNKNOWN_LINUX_MUSL_LINKER).
#
# lookup-svc and quota-svc are compiled twice (profile-guided optimization): first with counters, which record during a
# minute of mixed requests how often each branch is taken, then with these counts. The requests are those of the soak
# test, which needs redis-server; release/profdata.sh must find llvm-profdata. For another architecture than this
# machine's, they are compiled once, because their instrumented versions could not run.
#
# SOAK is the path of the soak test's program. Unless it is set, the program is built.
set -euo pipefail

if (($# != 2)) || [[ $1 != x86_64 && $1 != aarch64 ]]; then
    echo "usage: release/build.sh x86_64|aarch64 DIR" >&2
    exit 2
fi
target=$1-unknown-linux-musl
mkdir -p "$2"
dir=$(cd "$2" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target_dir=$(cargo metadata --format-version 1 --no-deps --locked | python3 -c 'import json, sys
print(json.load(sys.stdin)["target_directory"])')

build() { cargo build --profile dist --locked --target "$target" "$@"; }
# The counts are found by the names of functions, which depend on the features and thus on the packages that are built
# together: always these three.
build_services() { build -p lookup-svc -p quota-svc -p dashboard-api "$@"; }

if [[ $1 == "$(uname -m)" ]]; then
    profdata=$(release/profdata.sh)
    training=$target_dir/training
    rm -rf "$training"
    RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-generate" build_services
    install -D -t "$training" "$target_dir/$target"/dist/{lookup-svc,quota-svc}
    if [[ -z ${SOAK:-} ]]; then
        cargo build --locked -p bench --bin soak
        SOAK=$target_dir/debug/soak
    fi
    LLVM_PROFILE_FILE="$training/counts/%m.profraw" "$SOAK" --programs "$training" --minutes 1
    "$profdata" merge --output "$training/profile" "$training/counts"
    # A directory of its own, because cargo would not notice that the file with the counts has changed.
    RUSTFLAGS="${RUSTFLAGS:-} -Cprofile-use=$training/profile" build_services --target-dir "$training/target"
    services=$training/target/$target/dist
else
    echo "the programs for $1 are not optimized with counts: they can't run on this machine" >&2
    build_services
    services=$target_dir/$target/dist
fi
# A command of its own, as in the Dockerfile: in the same one, ip-lookup would get the features of the services, such as
# the Kubernetes client.
build -p standalone

install -m 755 "$services"/{lookup-svc,quota-svc,dashboard-api} "$target_dir/$target/dist/ip-lookup" "$dir"
rm -rf "$target_dir/training"
