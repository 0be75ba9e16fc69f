#!/usr/bin/env bash
# Prints the path of llvm-profdata: the toolchain's own (rustup component llvm-tools), or that of Debian's package for
# the same version of LLVM. Another version may not understand the counts.
set -euo pipefail

about=$(rustc -vV)
host=$(sed -n 's/^host: //p' <<<"$about")
llvm=$(sed -n 's/^LLVM version: \([0-9]*\).*/\1/p' <<<"$about")
for file in "$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata" "/usr/lib/llvm-$llvm/bin/llvm-profdata"; do
    if [[ -x $file ]]; then
        echo "$file"
        exit
    fi
done
echo "llvm-profdata is missing: run \`rustup component add llvm-tools\`, or install the package llvm-$llvm" >&2
exit 1
