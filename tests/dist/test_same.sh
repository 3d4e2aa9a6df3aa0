#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_same.sh SOURCE BUILD: packing twice gives the same archive.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$1/scripts/dist-bin.sh" "$2" "$work/first"
sleep 1 # another second on the clock
"$1/scripts/dist-bin.sh" "$2" "$work/second"
cmp "$work"/first/*.tar.xz "$work"/second/*.tar.xz
echo "the archives are the same"
