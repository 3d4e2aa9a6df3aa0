#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet smoke and bench with ranks on GPUs: those of tests/fakecuda. The other library is
# libstreamed.so, which runs on the driver's streams and is not motet.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
use_fakecuda
export STREAMED_LIB=$build/src/exports/libnccl.so.2
unset NCCL_TESTS_MIN_BW
other=$build/tests/cli/libstreamed.so
quick="-b 1K -e 64K -f 8 -n 4 -w 1 --rounds 3"

# rows N FIELDS: that many rows, no value wrong.
rows() {
    grep -v '^#' "$work/out" >"$work/rows" || true
    [ "$(wc -l <"$work/rows")" -eq "$1" ] || fail "$(wc -l <"$work/rows") rows, wanted $1"
    awk -v fields="$2" '
        NF != fields { print "fields: " NF; exit 1 }
        $9 != "0" || ($13 != "0" && $13 != "N/A") { print "wrong values"; exit 1 }' "$work/rows" ||
        fail "a row cannot be parsed, or is wrong"
    checks=$((checks + 1))
}

# --- what is found
expect 0 "$motet" smoke --lib "$other"
out_has "^driver:  $driver, CUDA 13\.0$"
out_has '^device:  1 .* GPU-[0-9a-f-]+$'
out_lacks 'take turns'
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
expect 0 env FAKECUDA_DEVICES=1 "$motet" smoke --lib "$other" -n 3 --device cuda
out_has '^ +3 ranks share 1 GPU: they take turns$'
expect 0 "$motet" smoke --lib "$STREAMED_LIB" --init-all
out_has '^ncclCommInitAll\(n=2\) OK'
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
expect 2 env FAKECUDA_DEVICES=1 "$motet" smoke --lib "$STREAMED_LIB" --init-all
err_has 'ncclCommInitAll: 2 ranks need as many GPUs, and there is 1'
expect 0 "$motet" smoke --lib "$other" --json
is_json "$work/out"
out_has '^  "device": "cuda",$'
expect 0 "$motet" smoke --device cpu -n 1
out_lacks '^driver:'
expect 0 env MOTET_DEVICE=cpu "$motet" smoke -n 1
out_lacks '^driver:'
expect 2 env FAKECUDA_DEVICES=0 "$motet" smoke --device cuda
err_has 'no NVIDIA GPU: cuInit: CUDA_ERROR_NO_DEVICE|no NVIDIA GPU: the driver sees no device'
expect 2 env FAKECUDA_INIT=999 "$motet" bench --device cuda
err_has 'no NVIDIA GPU: cuInit: CUDA_ERROR_UNKNOWN'

# --- ways of calling; what is captured is checked as it was replayed
# shellcheck disable=SC2086
{
    expect 0 "$motet" bench --lib "$other" $quick --timing eager,graph,blocking
    rows 9 19
    out_has '^# timing  eager, median of 3 turns$'
    out_has '^# timing  graph, 4 calls captured, 10 replays a turn, median of 3 turns$'
    out_has '^# timing  blocking, median of 3 turns$'
    out_has '^#  Rank  1 Group  0 Pid +[0-9]+ on +[^ ]+ device +1 \[[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\] '
    out_has 'p10      p90    issue'
    expect 0 "$motet" bench all --lib "$other" $quick -G 2 --buffers 3 --csv "$work/g.csv"
    rows 33 19
    out_has ' graph: 2 '
    out_has ', 3 sets of buffers in turn$'
    awk -F, 'NF != 18 || (NR > 1 && $15 != "graph") { exit 1 }' "$work/g.csv" || fail "CSV"
    for ranks in '-g 2' '-t 2' '-np 2 -g 2' '-np 3'; do
        expect 0 "$motet" bench all_gather sendrecv --lib "$other" $quick --timing graph,eager $ranks
        rows 12 19
    done
    for option in '-z 0' '-z 1' '-a 1' '-m 3' '-u 1' '-C 1' '-O 1' '-c 3' '-c 0' '-d all' '-o all'; do
        expect 0 "$motet" bench --lib "$other" -b 4K -e 4K -n 4 --rounds 2 $option
    done
    expect 2 "$motet" bench --lib "$other" $quick --register window
    err_has 'has no ncclCommWindowRegister'

    # two libraries, each in its own processes
    expect 0 "$motet" bench --lib "$other" --vs self $quick --timing graph,eager --json "$work/vs.json"
    rows 6 25
    is_json "$work/vs.json"
    grep -q '"timing": "graph"' "$work/vs.json" || fail "no timing in JSON"
    expect 1 env FALSIFIER_LIB="$STREAMED_LIB" "$motet" bench --lib "$other" --vs self \
        --vs-env STREAMED_LIB="$build/tests/cli/libfalsifier.so" --vs-env FALSIFIER_MODE=bit -b 1K -e 1K -G 1
    out_has '^# vs      with FALSIFIER_MODE=bit$'
    out_has '^# the library of --vs: [1-9][0-9]* values wrong out of place$'
    [ "$(grep -v '^#' "$work/out" | awk '{ print $9, $13 }')" = "0 0" ] || fail "the first library is blamed"
    expect 1 env FALSIFIER_LIB="$STREAMED_LIB" "$motet" bench --lib "$other" --vs self \
        --vs-env STREAMED_LIB="$build/tests/cli/libfalsifier.so" --vs-env FALSIFIER_MODE=crash -b 1K -e 1K
    err_has 'rank 1 of the other library \(pid [0-9]+\) was killed by signal 9'
    expect 1 env FALSIFIER_LIB="$STREAMED_LIB" "$motet" bench --lib "$other" --vs self -T 2 \
        --vs-env STREAMED_LIB="$build/tests/cli/libfalsifier.so" --vs-env FALSIFIER_MODE=hang -b 1K -e 1K
    err_has 'no progress for 2 s'
}

# --- motet's own ranks on GPUs, built in and as the drop-in, beside the other library
expect 0 "$motet" smoke --device cuda -T 120
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
# shellcheck disable=SC2086
{
    for option in '' '--register buffer' '--register window' '--register window --buffers 2' '-g 2' '-t 2'; do
        expect 0 "$motet" bench all_reduce all_gather broadcast $quick --timing eager,graph,blocking $option
        rows 27 19
    done
    expect 0 "$motet" bench --lib "$build/src/exports/libnccl.so.2" --vs "$other" $quick --timing graph --explain
    rows 3 25
    out_has '^# (plan: |ignored --explain: the library cannot tell)'
    expect 0 env FAKECUDA_DEVICES=1 "$motet" bench $quick -np 3
    out_has '^# 3 ranks share 1 GPU: they take turns$'
    rows 3 19
}

# --- a driver that fails
expect 1 env FAKECUDA_MEMORY=1048576 "$motet" bench --lib "$other" -b 1K -e 64M -n 1
err_has 'a buffer of [0-9]+ bytes: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY'
passed
