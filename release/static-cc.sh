#!/usr/bin/env bash
# The linker for static programs on x86_64: cc, with the object files in MEMORY_FUNCTIONS before everything else. They
# define memcpy and similar functions, so the linker does not take these from musl's archive. -Clink-arg would not work:
# rustc puts such arguments after musl's archive, and the functions would be defined twice.
set -euo pipefail

exec cc "$MEMORY_FUNCTIONS"/*.o "$@"
