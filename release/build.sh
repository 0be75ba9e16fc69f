#!/usr/bin/env bash
# Builds the four programs for a release: release/build.sh ARCH DIR
# ARCH is x86_64 or aarch64. The programs are static, so they run on any Linux distribution. Needs the Rust target
# ARCH-unknown-linux-musl and musl-gcc; for another architecture than this machine's, also a compiler for that
# architecture (CC_ARCH_unknown_linux_musl and CARGO_TARGET_ARCH_UNKNOWN_LINUX_MUSL_LINKER).
#
# The programs are compiled twice (profile-guided optimization). The first build counts how often each branch is taken
# during a minute of the soak test; the second build uses these counts. dashboard-api, which the soak test does not
# start, uses the counts of the code that it shares with the other services. The soak test needs redis-server, and
# release/profdata.sh must find llvm-profdata. For another architecture than this machine's, there is only one build,
# because the soak test could not run its programs.
#
# On x86_64, programs for x86_64 are linked by release/static-cc.sh with LLVM's memcpy, memmove, memset, memcmp and bcmp
# (release/llvmlibc.sh must find them), because musl's are slow for short copies.
#
# SOAK is the absolute path of the soak test's program. Unless it is set, cargo builds it.
set -euo pipefail
shopt -s nullglob

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

mkdir -p "$target_dir"
work=$(mktemp -d "$target_dir/release.XXXXXX")
trap 'rm -rf "$work"' EXIT

if [[ $1 == x86_64 && $1 == "$(uname -m)" ]]; then
    archive=$(release/llvmlibc.sh)
    export MEMORY_FUNCTIONS=$work/memory CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=$PWD/release/static-cc.sh
    mkdir "$MEMORY_FUNCTIONS"
    echo "memory functions from $archive"
    functions=({memcpy,memmove,memset,memcmp,bcmp}.cpp.o)
    # `ar x` ignores names that the archive does not have; `ls` fails.
    (cd "$MEMORY_FUNCTIONS" && ar x "$archive" "${functions[@]}" && ls "${functions[@]}" >/dev/null)
fi

if [[ $1 == "$(uname -m)" ]]; then
    profdata=$(release/profdata.sh)
    soak=(cargo run --locked -p bench --bin soak --)
    if [[ -n ${SOAK:-} ]]; then soak=("$SOAK"); fi
    builds=$work/target
else
    echo "no profile-guided optimization for $1: its programs can't run on this machine" >&2
    profdata=
    builds=$target_dir
fi
mkdir "$work/programs"

# build_programs "PACKAGE..." "PROGRAM..." "TRAINED..." [SOAK_FLAG]: builds the packages' programs. The soak test runs
# those named in TRAINED.
build_programs() {
    read -ra packages <<<"$1"
    read -ra programs <<<"$2"
    read -ra trained <<<"$3"
    # The compiler finds the counts of a function by its name. Names depend on the features, and features on the packages
    # in the command. So both builds name the same packages.
    build=(cargo build --profile dist --locked --target "$target" --target-dir "$builds" "${packages[@]/#/--package=}")
    if [[ -n $profdata ]]; then
        rm -rf "$work/counts"
        # Not RUSTFLAGS, which cargo splits at spaces: the path may contain some.
        CARGO_ENCODED_RUSTFLAGS=-Cprofile-generate "${build[@]}" "${trained[@]/#/--bin=}"
        (cd "$builds/$target/dist" && install -t "$work/programs" "${trained[@]}")
        LLVM_PROFILE_FILE="$work/counts/%m.profraw" "${soak[@]}" --programs "$work/programs" --minutes 1 "${@:4}"
        counts=("$work"/counts/*.profraw)
        if ((${#counts[@]} != ${#trained[@]})); then
            echo "expected the counts of ${trained[*]}, but found: ${counts[*]}" >&2
            exit 1
        fi
        "$profdata" merge --output "$work/profile" "${counts[@]}"
        CARGO_ENCODED_RUSTFLAGS=-Cprofile-use=$work/profile "${build[@]}"
    else
        "${build[@]}"
    fi
    (cd "$builds/$target/dist" && install -t "$work/programs" "${programs[@]}")
}

services="lookup-svc quota-svc dashboard-api"
build_programs "$services" "$services" "lookup-svc quota-svc"
# Separate, as in the Dockerfile: together with the services, ip-lookup would get their features, such as the Kubernetes
# client. Its soak test also starts the finished lookup-svc, for HTTPS, which writes no counts.
build_programs standalone ip-lookup ip-lookup --ip-lookup

install "$work"/programs/* "$dir"
