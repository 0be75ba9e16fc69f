#!/usr/bin/env bash
# The linker for static programs on x86_64: cc, with the object files in MEMORY_FUNCTIONS before everything else. They
# define memcpy and similar functions, so the linker does not take these from musl's archive. After musl's archive,
# where rustc puts additional arguments, they would be duplicates.
set -euo pipefail

exec cc "$MEMORY_FUNCTIONS"/*.o "$@"
