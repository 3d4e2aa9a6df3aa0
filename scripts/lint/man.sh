#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Manual pages are well formed.
set -euo pipefail
cd "$(dirname "$0")/../.."

command -v mandoc >/dev/null || {
    echo "man: SKIPPED, mandoc is not installed"
    exit 77
}
shopt -s nullglob
pages=(man/*.[1-9])
[ ${#pages[@]} -gt 0 ] || {
    echo "man:1: there is no page"
    exit 1
}
mandoc -T lint -W warning "${pages[@]}"
echo "man: nothing to report"
