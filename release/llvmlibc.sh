#!/usr/bin/env bash
# Prints the path of LLVM's C library as a static archive, from the newest of Debian's packages libllvmlibc-N-dev.
set -euo pipefail

shopt -s nullglob
archives=(/usr/lib/llvm-*/lib/libllvmlibc.a)
if ((${#archives[@]} == 0)); then
    echo "libllvmlibc.a is missing: install a package libllvmlibc-N-dev (apt-cache pkgnames libllvmlibc-)" >&2
    exit 1
fi
printf '%s\n' "${archives[@]}" | sort -V | tail -1
