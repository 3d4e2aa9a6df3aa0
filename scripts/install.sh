#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# scripts/install.sh PREFIX: builds the release preset and installs it. DESTDIR counts.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

[ $# = 1 ] || {
    echo "usage: scripts/install.sh PREFIX" >&2
    exit 64
}
build_preset release
cmake --install build/release --prefix "$1"
