#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_ptxas.sh PTX ARCHITECTURE...: NVIDIA's assembler takes our PTX for each of them.
# Where the build made a cubin of this PTX already, that is the proof.
set -euo pipefail

ptx=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH=$PATH:/usr/local/cuda/bin:/opt/cuda/bin

[ -e "$ptx" ] || {
    echo "SKIPPED: this build makes no PTX"
    exit 77
}
command -v ptxas >/dev/null || {
    echo "SKIPPED: ptxas is not installed (CUDA toolkit)"
    exit 77
}
# A kernel that does not say how large its blocks are may get too many registers.
[ "$(grep -c '\.entry ' "$ptx")" = "$(grep -c '^\.maxntid [0-9]' "$ptx")" ] || {
    echo "FAIL: not every kernel has a bound"
    exit 1
}
for arch; do
    if [ "$(dirname "$ptx")/sm_$arch.cubin" -nt "$ptx" ]; then
        echo "sm_$arch: the build's cubin"
    else
        ptxas -arch="sm_$arch" "$ptx" -o "$work/sm_$arch.cubin"
        echo "sm_$arch: assembled now"
    fi
done
