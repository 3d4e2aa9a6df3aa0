#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every C file, tracked or not yet, is laid out as .clang-format says. The version is
# part of the rule: other versions lay out differently. Names each file once, with the
# first line at fault; `clang-format-19 -i FILE` sets it right.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v clang-format-19 >/dev/null || {
    echo "format: SKIPPED, clang-format-19 is not installed"
    exit 77
}
list() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -coz --exclude-standard -- '*.c' '*.h' '*.cpp'
    else
        find . \( -name build -o -name dist \) -prune -o \
            \( -name '*.[ch]' -o -name '*.cpp' \) -print0
    fi | while IFS= read -r -d '' path; do
        # A file that was removed but not yet committed is still listed.
        [ ! -e "$path" ] || printf '%s\0' "$path"
    done
}
status=0
printed=$(list | xargs -0r clang-format-19 --dry-run -Werror 2>&1) || status=$?
[ $status = 0 ] || {
    printf '%s\n' "$printed" | awk -F: '
        / error: code should be clang-formatted/ && !seen[$1]++ {
            print $1 ":" $2 ": is laid out differently"
            found = 1
        }
        { text = text $0 "\n" }
        END { if (!found) printf "%s", text }'
    exit 1
}
echo "format: nothing to report"
