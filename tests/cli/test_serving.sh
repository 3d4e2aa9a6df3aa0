#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Commands that launch work on GPUs, on a host where others compute: what NVML says is
# libnvidia-ml.so.1 of fakenvml.c, what KFD says a folder of files.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
cuda=$build/tests/fakecuda
hip=$build/tests/fakehip
nvml=$build/tests/cli/nvml
[ -e "$cuda/libcuda.so.1" ] || skip "there is no $cuda/libcuda.so.1"
[ -e "$hip/libamdhip64.so.6" ] || skip "there is no $hip/libamdhip64.so.6"
[ -e "$nvml/libnvidia-ml.so.1" ] || skip "there is no $nvml/libnvidia-ml.so.1"
[ -z "${CLI_SANITIZE:-}" ] || skip "a driver that is mapped at run time does not fit a sanitizer"
own_path=${LD_LIBRARY_PATH:-}
export MOTET_STATE_DIR=$work/state MOTET_MAX_CTAS=2
unset MOTET_DEVICE MOTET_HOST_ROOT HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES \
    ROCM_PATH HIP_PATH DTK_ROOT MOTET_HIP_LIB NCCL_TESTS_MIN_BW

sleep 600 &
service=$!
trap 'kill $service 2>/dev/null || true; rm -rf "$work"' EXIT

on_cuda() {
    export LD_LIBRARY_PATH=$1:$cuda${own_path:+:$own_path}
}
# What is said of users; the host's own units may give lines too.
users='^motet [a-z]+: (refused|warning|pid)|^  pid '
bench="bench all_reduce -b 1K -e 1K -n 2 -w 1 --rounds 1"
# Each command that launches on a GPU, one a line.
launching="smoke --device DEVICE
$bench --device DEVICE
probe --device DEVICE --only device"

# refused_all DEVICE PATTERN...: each is refused, before it launches, in these words.
refused_all() {
    local device=$1 line pattern
    shift
    while read -r line; do
        # shellcheck disable=SC2086
        expect 2 "$motet" ${line//DEVICE/$device}
        out_lacks 'PASS|^ +[0-9]+ +[0-9]+ +float'
        for pattern; do
            err_has "$pattern"
        done
    done <<<"$launching"
    [ -z "$(ls "$MOTET_STATE_DIR/stages" 2>/dev/null)" ] || fail "a stage was begun"
}

# --- NVML: somebody computes on a GPU, any GPU
on_cuda "$nvml"
export FAKENVML_COMPUTE=$service
refused_all cuda '^motet (smoke|bench|probe): refused: other processes compute on GPUs of this host' \
    "^  pid $service: sleep 600$" '^    on GPU-00000001' "^    to stop it: " '--serving-anyway'
# shellcheck disable=SC2086
{
    expect 0 "$motet" $bench --device cuda --serving-anyway
    err_has '^motet bench: warning: other processes compute'
    err_has "^  pid $service: sleep 600$"
    # on CPUs nobody asks
    expect 0 "$motet" $bench --device cpu
    err_lacks 'sleep'
}
# shellcheck disable=SC2086
expect 0 env FAKENVML_COMPUTE= FAKENVML_MPS= "$motet" $bench --device cuda
err_lacks "$users"
expect 2 env FAKENVML_COMPUTE= FAKENVML_MPS=$service "$motet" smoke --device cuda
err_has "^  pid $service: sleep 600$"
# more than fit into a list of a few hundred
# shellcheck disable=SC2046
expect 2 env FAKENVML_COMPUTE="$(printf "$service %.0s" $(seq 300))" "$motet" smoke --device cuda
err_has "^  pid $service: sleep 600$"
# --host-memory has ranks on CPUs, whatever the machine has; but what a library with code
# for GPUs does with them nobody knows
expect 0 env FALSIFIER_LIB="$build/src/exports/libnccl.so.2" \
    "$motet" smoke --host-memory --processes --lib "$build/tests/cli/libfalsifier.so"
err_lacks "$users"
cp "$build/tests/cli/libfalsifier.so" "$work/vendor.so"
printf '.nv_fatbin' >>"$work/vendor.so"
# shellcheck disable=SC2086
for line in smoke "$bench"; do
    expect 2 env FALSIFIER_LIB="$build/src/exports/libnccl.so.2" \
        "$motet" $line --host-memory --lib "$work/vendor.so"
    err_has "^  pid $service: sleep 600$"
done
# a library from before the calls of today, whose entries are smaller
on_cuda "$nvml/old"
expect 2 env FAKENVML_COMPUTE="1 $service" "$motet" smoke --device cuda
err_has "^  pid $service: sleep 600$"
err_has "^  pid 1: "
on_cuda "$nvml"

# --- who only draws, and who is not there or the command's own
unset FAKENVML_COMPUTE
# shellcheck disable=SC2086
expect 0 env FAKENVML_GRAPHICS=$service "$motet" $bench --device cuda
err_has "^motet bench: pid $service, sleep 600, draws on a GPU of this host: that alone is no"
expect 0 env FAKENVML_COMPUTE="parent 4194304" "$motet" smoke --device cuda
err_lacks "$users"

# --- what NVML starts and leaves behind ends with it
# shellcheck disable=SC2086
expect 0 env FAKENVML_ORPHAN="$work/orphan" "$motet" $bench --device cuda
orphan=$(tail -n 1 "$work/orphan")
is_gone() {
    [ ! -e "/proc/$orphan/status" ] || grep -q '^State:.Z' "/proc/$orphan/status"
}
for _ in 1 2 3 4 5; do
    within_5s is_gone || continue
    break
done
is_gone || fail "pid $orphan was left behind"

# --- in a pid namespace of its own NVML names no process outside; GPU memory tells
if unshare --fork --pid --mount-proc true 2>/dev/null; then
    # shellcheck disable=SC2086
    {
        expect 2 unshare --fork --pid --mount-proc env FAKENVML_USED=68719476736 "$motet" $bench --device cuda
        err_has '^  pid unknown: a process outside of this container, which holds memory$'
        err_has '^    on GPU-00000001: 65536 MiB$'
        expect 0 unshare --fork --pid --mount-proc env FAKENVML_USED=1073741824 "$motet" $bench --device cuda
        # where all processes are in sight it says nothing
        if [ "$(readlink /proc/self/ns/pid)" = 'pid:[4026531836]' ]; then
            expect 0 env FAKENVML_USED=68719476736 "$motet" $bench --device cuda
        fi
    }
fi

# --- somebody comes in the middle: before the next stage it stops
log=$work/starts
# shellcheck disable=SC2086
{
    expect 2 env FAKENVML_COMPUTE=$service FAKENVML_LOG="$log" FAKENVML_AFTER=2 \
        "$motet" bench all_reduce all_gather broadcast -b 1K -e 1K -n 2 -w 1 --rounds 1 --device cuda
    out_has '^#.*all_reduce'
    out_lacks 'all_gather|broadcast'
    err_has "^  pid $service: sleep 600$"
    err_has '^motet bench: stopped before the next stage$'
    [ "$(wc -c <"$log")" -eq 3 ] || fail "looked $(wc -c <"$log") times, wanted 3"
    rm "$log"
    expect 0 env FAKENVML_LOG="$log" "$motet" bench all_reduce all_gather -b 1K -e 1K -n 2 -w 1 \
        --rounds 1 --timing eager,blocking --device cuda --vs self
    [ "$(wc -c <"$log")" -eq 5 ] || fail "looked $(wc -c <"$log") times, wanted 5"
}

# --- what cannot be asked is said, once, and no reason to stop
mkdir -p "$work/root/dev"
touch "$work/root/dev/nvidiactl"
export MOTET_HOST_ROOT=$work/root
for trouble in crash exit; do
    # shellcheck disable=SC2086
    expect 0 env FAKENVML_TROUBLE=$trouble "$motet" $bench --device cuda
    err_has '^motet bench: libnvidia-ml\.so\.1: it crashed, so users of NVIDIA GPUs are not known$'
    [ "$(grep -c 'not known' "$work/err")" -eq 1 ] || fail "said more than once"
done
# shellcheck disable=SC2086
expect 0 env FAKENVML_TROUBLE=lost "$motet" $bench --device cuda
err_has 'it does not tell of GPU 1, so'
# shellcheck disable=SC2086
expect 0 env FAKENVML_INIT=18 "$motet" $bench --device cuda
err_has 'it does not start: NVML error 18, so'
# shellcheck disable=SC2086
expect 0 env FAKENVML_TROUBLE=hang FAKENVML_LOG="$work/hangs" "$motet" $bench --device cuda
err_has 'it did not answer in time, so'
[ "$(wc -c <"$work/hangs")" -eq 1 ] || fail "asked again what does not answer"
on_cuda "$work/root"
# shellcheck disable=SC2086
expect 0 "$motet" $bench --device cuda
err_has 'libnvidia-ml\.so\.1: .*cannot open shared object file.*, so users'

# --- KFD: a unit, a container, a display server
rm -r "$work/root"
kfd=$work/root/sys/class/kfd/kfd/proc
export LD_LIBRARY_PATH=$hip${own_path:+:$own_path}
id=3f2a9c0d1e5b7a8899aabbccddeeff00112233445566778899aabbccddeeff00
mkdir -p "$kfd/4711/queues/0" "$kfd/4712" "$kfd/4713" "$kfd/4714" "$work/root/proc/"{4711,4712,4713,4714}
for pid in 4711 4712 4713 4714; do
    echo 0 >"$kfd/$pid/vram_51234"
done
echo 51234 >"$kfd/4711/queues/0/gpuid"
printf 'python3\0-m\0vllm.entrypoints.openai.api_server\0' >"$work/root/proc/4711/cmdline"
echo '0::/system.slice/vllm.service' >"$work/root/proc/4711/cgroup"
echo 17179869184 >"$kfd/4712/vram_51234"
printf 'llama-server\0-m\0a.gguf\0' >"$work/root/proc/4712/cmdline"
echo "0::/system.slice/docker-$id.scope" >"$work/root/proc/4712/cgroup"
echo 67108864 >"$kfd/4713/vram_51234"
echo Xorg >"$work/root/proc/4713/comm"
printf 'rocminfo\0' >"$work/root/proc/4714/cmdline"
launching="$launching
probe --gate-kernels"
refused_all hip '^  pid 4711: python3 -m vllm\.entrypoints\.openai\.api_server$' \
    '^    on KFD gpu_id 51234: 1 queue, 0 MiB, unit vllm\.service$' \
    'systemctl stop vllm\.service && systemctl mask vllm\.service$' \
    '^  pid 4712: llama-server -m a\.gguf$' 'docker container 3f2a9c0d1e5b' 'docker stop 3f2a9c0d1e5b' \
    '^  pid 4713: Xorg$' 'a display server, which may stay' 'only stopped may be started again'
err_lacks '4714'
expect 0 "$motet" smoke --device hip --serving-anyway
err_has '^motet smoke: warning'

# --- the same in a pid namespace of its own, where KFD's numbers mean nothing
# shellcheck disable=SC2016
inside='mount -t tmpfs none /sys/class && cp -r "$1"/sys/class/kfd /sys/class && shift && exec "$@"'
in_namespace="unshare --fork --pid --mount --mount-proc env -u MOTET_HOST_ROOT sh -c"
# shellcheck disable=SC2086
if $in_namespace "$inside" sh "$work/root" true 2>/dev/null; then
    expect 2 $in_namespace "$inside" sh "$work/root" "$motet" $bench --device hip
    err_has "^  pid 4711: a process outside of this container; the pid is the host's$"
    err_has '^    to stop it: kill 4711 on the host, or stop and mask its unit there$'
    err_lacks 'vllm|4714'
    expect 0 $in_namespace "$inside" sh "$work/root" "$motet" $bench --device hip --serving-anyway
    err_has '^  pid 4712: a process outside'
    err_has 'users of AMD GPUs cannot be told from the ranks of this command$'
fi

# --- stopped, but not masked; then masked
rm -r "$kfd/4711" "$kfd/4712" "$work/root/proc/"{4711,4712}
mkdir -p "$work/root/run/systemd/system" "$work/root/etc/systemd/system"
printf '[Service]\nExecStart=/srv/run.sh\n' >"$work/root/etc/systemd/system/vllm.service"
# shellcheck disable=SC2086
expect 0 "$motet" $bench --device hip
err_has '^motet bench: vllm\.service is stopped but not masked, .*: systemctl mask vllm\.service$'
ln -sf /dev/null "$work/root/etc/systemd/system/vllm.service"
# shellcheck disable=SC2086
expect 0 "$motet" $bench --device hip
err_lacks 'vllm'
# one of a template has no file of its own
printf '[Service]\nExecStart=/srv/run.sh\n' >"$work/root/etc/systemd/system/vllm@.service"
touch "$MOTET_STATE_DIR/units/vllm@1.service"
# shellcheck disable=SC2086
expect 0 "$motet" $bench --device hip
err_has '^motet bench: vllm@1\.service is stopped but not masked, .*: systemctl mask vllm@1\.service$'
ln -sf /dev/null "$work/root/etc/systemd/system/vllm@1.service"
# shellcheck disable=SC2086
expect 0 "$motet" $bench --device hip
err_lacks 'vllm'

# --- a driver that does not say whether there are GPUs may do so when a rank asks: nothing
# is started by default
mkdir "$work/bad"
cp "$build/tests/cli/libfaulty.so" "$work/bad/libcuda.so.1"
for line in smoke "$bench"; do
    # shellcheck disable=SC2086
    expect 2 env LD_LIBRARY_PATH="$work/bad${own_path:+:$own_path}" FAULTY_MODE=load-exit MOTET_HIP_LIB=/no/such/lib.so \
        "$motet" $line
    err_has 'no NVIDIA GPU: the driver crashed; no AMD GPU: .*; --device cpu has ranks on CPUs$'
done

# --- written ahead: what did not come back is not repeated
unset MOTET_HOST_ROOT
on_cuda "$nvml"
forever="bench all_reduce -b 1K -e 1K -n 2 -w 1 --rounds 1 -N 0 --device cuda"
began() {
    compgen -G "$MOTET_STATE_DIR/stages/bench.*" >/dev/null
}
# bench_and_signal SIGNAL: in the middle of a bench that would go on for ever.
bench_and_signal() {
    # shellcheck disable=SC2086
    "$motet" $forever >"$work/out" 2>"$work/err" </dev/null &
    local pid=$!
    for _ in 1 2 3 4 5; do # a loaded machine takes its time
        within_5s began || continue
        break
    done
    began || fail "bench wrote nothing ahead"
    grep -q "^boot $(cat /proc/sys/kernel/random/boot_id)$" "$MOTET_STATE_DIR"/stages/bench.* || fail "no boot id"
    kill "-$1" "$pid"
    { wait "$pid" || true; } 2>/dev/null # not a word of the shell about it
}
# shellcheck disable=SC2086
{
    bench_and_signal TERM
    ! began || fail "a bench that was ended by SIGTERM counts as one that did not come back"
    bench_and_signal KILL
    began || fail "a bench that was killed left nothing"
    expect 2 "$motet" $bench --device cuda
    err_has '^motet bench: refused: the same began at 20[0-9-]+ [0-9:]+ UTC, and its process \(pid [0-9]+\) is gone\. '
    # another library is another matter
    expect 0 "$motet" $bench --device cuda --lib "$build/src/exports/libnccl.so.2"
    sed -i 's/^boot .*/boot 00000000-0000-0000-0000-000000000000/' "$MOTET_STATE_DIR"/stages/bench.*
    expect 2 "$motet" $bench --device cuda
    err_has 'and this machine was started anew since'
    expect 0 "$motet" $bench --device cuda --serving-anyway
    ! began || fail "it is still remembered"
    expect 0 "$motet" $bench --device cuda
    # without a place to write it goes on, and says so
    expect 0 env MOTET_STATE_DIR=/dev/null/x "$motet" $bench --device cuda
    err_has 'so if this does not come back nobody will know'
}
passed
