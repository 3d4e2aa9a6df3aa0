#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every script parses, stops at the first failure, and passes shellcheck if that is here.
set -euo pipefail
cd "$(dirname "$0")/../.."

if git rev-parse --git-dir >/dev/null 2>&1; then
    mapfile -t scripts < <(git ls-files -co --exclude-standard -- '*.sh' .ci/run)
else
    mapfile -t scripts < <(find . \( -name build -o -name dist \) -prune -o -name '*.sh' -print)
fi
found=0
for script in "${scripts[@]}"; do
    [ -e "$script" ] || continue
    bash -n "$script" || found=1
    if [ -x "$script" ] && ! grep -q '^set -euo pipefail$' "$script"; then
        echo "$script:1: has no 'set -euo pipefail'"
        found=1
    fi
done
if command -v shellcheck >/dev/null; then
    shellcheck -x -f gcc -S warning "${scripts[@]}" || found=1
else
    echo "shell: shellcheck is not installed, only the syntax was looked at"
fi
[ $found = 0 ] && echo "shell: nothing to report"
exit $found
