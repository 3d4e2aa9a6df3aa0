#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# glibc.sh FILE...: what is shipped runs where glibc is 2.34 or newer, and needs
# nothing but libc, libm and the loader. What was linked on a new distribution may
# ask for more: then the symbol at fault is named.
set -euo pipefail
export LC_ALL=C

readonly newest=2.34
[ $# -gt 0 ] || {
    echo "usage: glibc.sh FILE..." >&2
    exit 64
}
command -v readelf >/dev/null || {
    echo "glibc: SKIPPED, readelf is not installed"
    exit 77
}
found=0
for file; do
    # Undefined dynamic symbols, as `name version`: "strtol@GLIBC_2.2.5 (3)".
    wants=$(readelf --dyn-syms -W "$file" | sed -n 's/.* UND \([^@ ]*\)@\{1,2\}GLIBC_\([0-9.]*\).*/\1 \2/p')
    while read -r name version; do
        [ -n "$name" ] || continue
        if [ "$(printf '%s\n%s\n' "$newest" "$version" | sort -V | tail -n 1)" != "$newest" ]; then
            echo "$file:1: $name needs glibc $version, at most $newest"
            found=1
        fi
    done <<<"$wants"
    for library in $(readelf -d "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
        case $library in
        libc.so.6 | libm.so.6 | ld-linux*.so.*) ;;
        *)
            echo "$file:1: needs $library; only libc, libm and the loader may be needed"
            found=1
            ;;
        esac
    done
done
[ $found = 0 ] && echo "glibc: nothing to report"
exit $found
