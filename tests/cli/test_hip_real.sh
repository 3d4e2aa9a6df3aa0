#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet smoke --device hip with a real runtime and no card: Debian's libamdhip64-5 (the
# package's own library in a machine without /dev/kfd).
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
[ ! -e /dev/kfd ] || skip "there is a /dev/kfd: this machine may have a card"
runtime=$(PATH=$PATH:/sbin ldconfig -p | awk '$1 == "libamdhip64.so.5" { print $NF; exit }')
[ -n "$runtime" ] || skip "libamdhip64.so.5 is not installed (apt-get install libamdhip64-5)"
[ -z "${CLI_SANITIZE:-}" ] || skip "a runtime that is mapped at run time does not fit a sanitizer"
unset MOTET_DEVICE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ROCM_PATH HIP_PATH DTK_ROOT MOTET_HIP_LIB

# All required symbols are there, or the sentence would be about one of them.
for command in "smoke" "bench -n 1"; do
    # shellcheck disable=SC2086
    expect 2 "$motet" $command --device hip
    err_has 'no AMD GPU: .*libamdhip64\.so\.5.* \(HIP 5\.[0-9]+\): '
    err_has '/dev/kfd'
    err_lacks 'has no hip'
    [ ! -s "$work/out" ] || fail "words on stdout"
done
# What was meant to be a GPU does not become a CPU silently; without that wish it does.
expect 0 "$motet" smoke -n 1
out_lacks '^driver:'
passed
