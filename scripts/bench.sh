#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# make bench: motet and its peers in one run, see bench/peers/README.md.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

scripts/deps.sh bench
build_preset release
exec bench/peers/run.sh "$@"
