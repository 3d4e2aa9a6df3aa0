#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet smoke and bench with ranks on AMD GPUs, those of tests/fakehip; and which runtime
# is used where there are several.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
fake=$build/tests/fakehip
[ -e "$fake/libamdhip64.so.6" ] || skip "there is no $fake/libamdhip64.so.6"
[ -z "${CLI_SANITIZE:-}" ] || skip "a runtime that is mapped at run time does not fit a sanitizer"
own_path=${LD_LIBRARY_PATH:-}
export LD_LIBRARY_PATH=$fake${own_path:+:$own_path}
export MOTET_STATE_DIR=$work/state MOTET_MAX_CTAS=2
mkdir "$MOTET_STATE_DIR"
unset MOTET_DEVICE HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES \
    ROCM_PATH HIP_PATH DTK_ROOT MOTET_HIP_LIB
quick="-b 1K -e 16K -f 4 -n 4 -w 1 --rounds 2"

# --- what is found, and how heads name it
expect 0 "$motet" smoke
out_has "^driver:  $fake/libamdhip64\.so\.6, HIP 6\.3\.[0-9]+$"
out_has '^device:  0 .* gfx1100 [0-9a-f]{4}:[0-9a-f]{2}:00\.0$'
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
expect 0 env FAKEHIP_TARGET=gfx1201,gfx942 "$motet" smoke --device hip --json
is_json "$work/out"
out_has '^  "device": "hip",$'
out_has '"target": "gfx1201"'
out_has '"target": "gfx942'
expect 0 env FAKEHIP_DEVICES=1 "$motet" smoke -n 3 --device hip
out_has '^ +3 ranks share 1 GPU: they take turns$'
expect 0 "$motet" smoke --device gpu --threads
out_has '^driver:  .*libamdhip64'
expect 0 "$motet" smoke --device cpu -n 1
out_lacks '^driver:'
# shellcheck disable=SC2086
{
    expect 0 "$motet" bench all_reduce --device hip $quick --timing eager,graph,blocking --json "$work/bench.json"
    out_has "^# driver  $fake/libamdhip64\.so\.6, HIP 6\.3\."
    out_has '^# device  1 .* gfx1100 '
    grep -q '"buffers": "hipMalloc"' "$work/bench.json" || fail "no allocator in JSON"
}

# --- as librccl.so.1, by its path and as what a program finds by name
expect 0 "$motet" smoke --device hip --lib "$build/src/exports/librccl.so.1" --cold 2
out_has '^once more: ranks=2 \(one process\)$'
out_has '^cold     ncclCommInitRank\(n=2\) in fresh processes: 2 of 2 ok$'
out_has '^cold     ncclCommInitAll\(n=2\) in fresh processes: 2 of 2 ok$'
[ -z "$(ls "$MOTET_STATE_DIR/stages" 2>/dev/null)" ] || fail "a stage is left that is over"
expect 0 env FAKEHIP_DEVICES=1 "$motet" smoke --device hip --lib "$build/src/exports/librccl.so.1"
out_has '^not tried: .* made by ncclCommInitAll: 2 ranks need as many GPUs, and there is 1$'
expect 0 "$motet" run --as rccl -- "$motet" smoke --device hip --lib librccl.so.1
out_has "^library: .*/src/exports/librccl\.so\.1"
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"

# --- cards without AtomicOps: a library with kernels that declare a hostcall is refused, as
# the runtime does it, and ours passes the same program
other=$fake/libdeclares_hostcall.so
if [ -e "$other" ]; then
    # with AtomicOps it gets past the launch, and then has nothing more to show
    expect 1 env FAKEHIP_ATOMICS=1 "$motet" smoke --device hip --lib "$other"
    err_has 'this library only shows how it is refused'
    for where in launch last sync; do
        expect 1 env FAKEHIP_ATOMICS=0 FAKEHIP_REFUSE=$where "$motet" smoke --device hip --lib "$other"
        err_has "HIP failure 401 '"
        expect 0 env FAKEHIP_ATOMICS=0 FAKEHIP_REFUSE=$where "$motet" smoke --device hip
        [ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
    done
fi

# --- fp8 of gfx942 on the copy path, where the host reduces: no sums of it, and all else
export FAKEHIP_TARGET=gfx942 MOTET_PATH=copy
expect 0 "$motet" smoke --device hip
[ "$(tail -n 1 "$work/out")" = PASS ] || fail "the last line is not PASS"
# shellcheck disable=SC2086
{
    expect 0 "$motet" bench all_reduce --device hip $quick -d all
    out_has '^# f8e4m3 has no sum on these devices, skipping$'
    out_lacks '^ +[0-9].* f8e'
    expect 1 "$motet" bench all_reduce --device hip $quick -d f8e4m3
    err_has 'fp8 is FNUZ on these devices, and on the copy path the host'
}
unset FAKEHIP_TARGET MOTET_PATH

# --- a runtime that fails
expect 2 env FAKEHIP_DEVICES=0 "$motet" smoke --device hip
err_has 'no AMD GPU: .*libamdhip64\.so\.6 .*hipErrorNoDevice'
expect 2 env FAKEHIP_INIT=999 "$motet" bench --device hip
err_has 'no AMD GPU: .*hipErrorUnknown'
expect 2 env LD_LIBRARY_PATH="$fake/bare" FAKEHIP_DEVICES=0 "$motet" smoke --device gpu
err_has 'no NVIDIA GPU: .*; no AMD GPU: '
expect 64 "$motet" smoke --device rocm
err_has "the device is 'rocm', need auto, cpu, cuda or hip"

# --- the copy that a process has mapped is the one used: from a private path, with the
# SONAME libamdhip64.so, RTLD_LOCAL or RTLD_GLOBAL; the loader would find another one
mkdir "$work/private"
cp "$fake/libamdhip64.so.6" "$work/private/libamdhip64.so.6"
cp "$fake/plain/libamdhip64.so" "$work/private/libamdhip64.so"
used=$build/tests/gpu/runtime_used
for runtime in "$work/private/libamdhip64.so.6" "$work/private/libamdhip64.so" \
    "$fake/rocm7/libamdhip64.so.7" "$fake/dtk/libgalaxyhip.so.5"; do
    expect 0 env MOTET_DEVICE=hip "$used" "$runtime"
    expect 0 env MOTET_DEVICE=hip "$used" --global "$runtime"
done
expect 0 env MOTET_DEVICE=hip "$used" "$work/private/libamdhip64.so.6" "$fake/rocm7/libamdhip64.so.7"
expect 0 env LD_PRELOAD="$work/private/libamdhip64.so.6" "$motet" smoke --device hip
out_has "^driver:  $work/private/libamdhip64\.so\.6, HIP"
passed
