#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet smoke: passes on what is right, fails on what is wrong, and ends.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
export FALSIFIER_LIB=$build/src/exports/libnccl.so.2
falsifier=$build/tests/cli/libfalsifier.so
export MOTET_DEVICE=cpu # also where there are GPUs; test_gpu.sh has those

last_is() {
    [ "$(tail -n 1 "$work/out")" = "$1" ] || fail "the last line is not $1"
    checks=$((checks + 1))
}

expect 0 "$motet" smoke
last_is PASS
out_has '^library: /.* \(built in\)$'
out_has 'version 2\.27\.7, sha256 [0-9a-f]{64}$'
for size in '4 KB' '32 KB' '128 KB' '512 KB'; do
    out_has "^$size +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$"
done
for collective in all_reduce all_gather reduce_scatter broadcast reduce alltoall alltoallv \
    gather scatter sendrecv hypercube; do
    out_has "^checked  $collective +[0-9]+ cases  ok$"
done
if command -v sha256sum >/dev/null; then
    out_has "sha256 $(sha256sum "$(readlink -f "$motet")" | cut -d' ' -f1)$"
fi
expect 0 "$motet" smoke -n 3 --threads
last_is PASS
out_has 'ranks=3 \(threads\)'
out_has '^checked  hypercube +needs 2, 4, 8'
expect 0 "$motet" smoke -n 1
last_is PASS
expect 0 "$motet" smoke --json
is_json "$work/out"
out_has '^  "pass": true$'

# --- devices
expect 2 "$motet" smoke --device hip
err_has 'no AMD GPU'
expect 64 "$motet" smoke --device tpu
err_has "the device is 'tpu', need auto, cpu, cuda or hip"
expect 0 env -u MOTET_DEVICE "$motet" smoke --device cpu -n 1
last_is PASS

# --- another library
expect 2 "$motet" smoke --lib /no/such/lib.so
err_has 'open library: .*/no/such/lib.so'
last_is FAIL
expect 2 "$motet" smoke --lib "$build/tests/cli/libdummy.so"
err_has 'has no ncclGetVersion: not a library with the NCCL ABI'
expect 2 "$motet" smoke --lib "$falsifier"
err_has 'is not motet, so its ranks want GPU memory.*--host-memory'
expect 0 "$motet" smoke --lib "$build/src/exports/libnccl.so.2"
last_is PASS
out_has '^library: .*/libnccl\.so\.2[0-9.]*$'
expect 0 "$motet" smoke --lib "$falsifier" --host-memory
last_is PASS

# --- a library that is wrong
for mode in bit past input; do
    expect 1 env FALSIFIER_MODE=$mode "$motet" smoke --lib "$falsifier" --host-memory
    last_is FAIL
    out_has '^checked  all_reduce +[0-9]+ cases  [1-9][0-9]* values wrong$'
    out_has '^checked  all_gather +[0-9]+ cases  ok$'
done
expect 1 env FALSIFIER_MODE=bit "$motet" smoke --json --lib "$falsifier" --host-memory
is_json "$work/out"
out_has '^  "pass": false$'
expect 1 env FALSIFIER_MODE=hang "$motet" smoke -T 1 --lib "$falsifier" --host-memory
err_has 'no progress for 1 s'
last_is FAIL
expect 1 env FALSIFIER_MODE=crash "$motet" smoke --lib "$falsifier" --host-memory
err_has 'rank 1 \(pid [0-9]+\) was killed by signal 9'
last_is FAIL
expect 1 env FALSIFIER_MODE=crash "$motet" smoke --json --lib "$falsifier" --host-memory
is_json "$work/out"
passed
