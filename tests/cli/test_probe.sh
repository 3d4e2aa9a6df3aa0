#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet probe: what works is ok, and each fault of a library lands in its own cell, within
# the deadline, with the rows behind it still run.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
export FAULTY_LIB=$build/src/exports/libnccl.so.2
faulty=$work/libfaulty.so # a name that no process of another test has
ln -s "$build/tests/cli/libfaulty.so" "$faulty"
export MOTET_STATE_DIR=$work/state
mkdir "$MOTET_STATE_DIR"
unset MOTET_RCCL_LIB MOTET_NCCL_LIB NCCL_DEBUG MOTET_OP_TIMEOUT_S MOTET_INIT_TIMEOUT_S \
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ROCM_PATH HIP_PATH DTK_ROOT MOTET_HIP_LIB
export MOTET_DEVICE=cpu # also where there are GPUs
# Of a cell that hangs, and of any other one, which a loaded machine may keep from going on.
hang_deadline=8
deadline=20
few="init,all_reduce,send_both"

# Every cell of a JSON report in $work/out, a line each: OPERATION RANK DEVICE STAGE.
cells() {
    awk '
        { gsub(/[",]/, "") }
        $1 == "operation:" { operation = $2 }
        $1 == "rank:" { rank = $2 }
        $1 == "device:" { device = $2 }
        $1 == "stage:" { sub(/^ *stage: /, ""); print operation, rank, device, $0 }
    ' "$work/out"
}

# cell_is OPERATION RANK STAGE, of a row of several ranks
cell_is() {
    cells | grep -q "^$1 $2 $2 $3\$" ||
        fail "rank $2's cell of $1 is not '$3': $(cells | grep "^$1 " | tr '\n' ';')"
    checks=$((checks + 1))
}

# probe STATUS VARIABLE=VALUE… : the faulty library, a few rows
probe() {
    local wanted=$1 seconds=$deadline
    shift
    case $1 in *hang) seconds=$hang_deadline ;; esac
    expect "$wanted" env "$@" "$motet" probe --json -T "$seconds" --lib "$faulty" --only "$few"
    is_json "$work/out"
}

# Wait up to a minute until a command succeeds.
within_a_minute() {
    for _ in $(seq 600); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.1
    done
    return 1
}

# Whether no process has the faulty library on its command line.
all_are_gone() {
    ! grep -qsE "$work/[l]ibfaulty" /proc/[0-9]*/cmdline
}

# put FILE TEXT, below the synthetic host
put() {
    mkdir -p "$(dirname "$work/host/$1")"
    echo "$2" >"$work/host/$1"
}

# add_card ADDRESS PORT SPEED WIDTH: an AMD card right below a root port
add_card() {
    local port=sys/devices/pci0000:00/$2 card=sys/devices/pci0000:00/$2/$1
    put "$port/vendor" 0x1022
    put "$port/device" 0x1483
    put "$port/class" 0x060400
    put "$card/vendor" 0x1002
    put "$card/device" 0x744c
    put "$card/class" 0x030000
    put "$card/current_link_speed" "$3 GT/s PCIe"
    put "$card/current_link_width" "$4"
    mkdir -p "$work/host/sys/bus/pci/devices"
    ln -s "../../../../$port" "$work/host/sys/bus/pci/devices/$2"
    ln -s "../../../../$card" "$work/host/sys/bus/pci/devices/$1"
}

# --- what is wrong on the command line
for args in "--timeout 0" "--timeout x" "-n 0" "-n 17" "--only all_redcue" "--model hidden=1" \
    "--lib" "surplus" "--device tpu" "--model hidden=65536,layers=1,batch=65536" \
    "--gate-kernels --lib ours" "--gate-kernels --only device" "--gate-kernels -n 1" \
    "--gate-kernels --model hidden=64,layers=1" "--gate-kernels --collect $work/all.tar"; do
    # shellcheck disable=SC2086
    expect 64 "$motet" probe $args
done
expect 64 "$motet" probe --only all_redcue
err_has "there is no operation 'all_redcue'; is 'all_reduce' meant\\?"
stale=$MOTET_STATE_DIR/stages/probe.all_reduce.1
mkdir "$MOTET_STATE_DIR/stages"
printf 'boot 00000000-0000-0000-0000-000000000000\npid 1\n' >"$stale"
expect 64 "$motet" probe --repeat --timeout 0
expect 2 env MOTET_HIP_LIB="$work/none.so" "$motet" probe --device hip --repeat
[ -e "$stale" ] || fail "what did not come back is forgotten, and nothing was repeated"
rm "$stale"
expect 0 "$motet" probe --help
out_has '^usage: motet probe'
expect 2 env MOTET_HIP_LIB="$work/none.so" "$motet" probe --device hip
err_has 'no AMD GPU'
expect 2 env MOTET_HIP_LIB="$work/none.so" "$motet" probe --device hip --json
is_json "$work/out"
out_has '"rows": \[\]'

# --- ours on CPUs: every row
expect 0 "$motet" probe
out_has '^motet probe: 2 ranks on the CPU, deadline 25 s a cell$'
out_has '^library A: /.*, the copy inside this command$'
out_has '^ +version 2\.27\.7, sha256 [0-9a-f]{64}$'
out_has '^ +rank 0 +rank 1$'
out_has '^load +ok [0-9.]+ ms$'
for operation in device one_rank; do
    out_has "^$operation +ok.*ok"
done
out_has '^ranks 0 and 1$'
for operation in init all_reduce broadcast barrier all_gather reduce_scatter send_0_to_1 \
    send_1_to_0 send_both; do
    out_has "^  $operation +ok [0-9.]+ ms +ok [0-9.]+ ms$"
done
for use in 'tensor parallel' 'pipeline parallel' 'layer split' replicas; do
    out_has "^  $use +A  yes "
done

# --- three ranks: each pair, then all; and what a model's step costs
expect 0 "$motet" probe -n 3 --only device,init,all_reduce,broadcast,barrier,all_gather,send_ring \
    --model hidden=1024,layers=4,batch=2 --json
is_json "$work/out"
[ "$(cells | grep -c '^all_reduce ')" -eq 9 ] || fail "all_reduce has not 3 pairs and all"
[ "$(cells | grep -c '^send_ring ')" -eq 3 ] || fail "send_ring is not of all ranks"
[ "$(cells | grep -c ' done$')" -eq "$(cells | wc -l)" ] || fail "not all is done"
out_has '"ms_per_token_step": [0-9]'
for key in libraries devices rows decides path version sha256 library operation ranks rank device \
    ok stage message ms tensor_parallel pipeline_parallel layer_split replicas; do
    out_has "\"$key\":"
done

# --- one rank, and libraries side by side
expect 0 "$motet" probe -n 1 --only device,one_rank
out_has '^  tensor parallel +A  unknown  there is one rank only$'
probe 0 FAULTY_MODE=
out_has '"version": "2\.23\.4"'
expect 1 env FAULTY_MODE=launch "$motet" probe -T "$deadline" --lib "$faulty" --lib ours --only "$few"
out_has '^ +A: libfaulty\.so +B: ours$'
out_has '^  all_reduce +FAIL launch +FAIL launch +ok [0-9.]+ ms +ok [0-9.]+ ms$'
out_has '^  A all_reduce, rank 1: launch: .*unhandled cuda error, I cannot say more'
out_has '^  tensor parallel +A  no +all_reduce of ranks 0, 1 fails on rank 0: launch$'
expect 1 env MOTET_RCCL_LIB="$faulty" FAULTY_MODE=launch "$motet" probe -T "$deadline" --only "$few"
out_has '^library A: .*libfaulty\.so, the one that .motet lib. chooses$'
out_has '^library B: .*, the copy inside this command$'

# --- libraries that cannot be used: the other one is still probed
expect 2 "$motet" probe --lib /no/such/lib.so --lib ours --only init --json
is_json "$work/out"
out_has 'cannot open shared object file'
cell_is init 0 'not run'
cell_is init 1 'done'
expect 2 env MOTET_NCCL_LIB="$work/none.so" "$motet" probe --lib nccl --lib ours --only init --json
cell_is init 0 'not run'
cell_is init 1 'done'
expect 0 env ROCM_PATH="$work/none" "$motet" probe --only device # of no matter on CPUs
expect 1 "$motet" probe --lib "$build/tests/cli/libdummy.so" --only init
out_has '^symbols +FAIL symbols$'
out_has 'has no ncclGetVersion: not a library with the NCCL ABI'
printf 'no library' >"$work/text.so"
expect 1 "$motet" probe --lib "$work/text.so" --only init
out_has '^load +FAIL load$'
out_has '^  A load: load: .*file too short|invalid ELF header'

# --- constructors: only the first row meets them
for mode in load-crash load-exit; do
    probe 1 FAULTY_MODE=$mode
    cells | grep -q '^load 0 null load$' || fail "$mode is not met in load"
    cell_is all_reduce 0 'not run'
done
probe 1 FAULTY_MODE=load-hang
cells | grep -q '^load 0 null hang$' || fail "the constructor's hang is not met in load"
out_has '"message": "did not come back within [0-9]+ s in load: dlopen"'
cell_is init 1 'not run'

# --- both ranks fail, each in its cell; what comes behind still runs
while IFS=';' read -r mode stage words; do
    probe 1 FAULTY_MODE="$mode"
    for rank in 0 1; do
        cell_is init $rank 'done'
        cell_is all_reduce $rank "$stage"
        cell_is send_both $rank 'done'
    done
    out_has "\"message\": \".*$words"
done <<'END'
launch;launch;faulty\.cc:12 NCCL WARN unhandled cuda error, I cannot say more
sync;sync;the operation cannot be performed in the present state
async;last error;ncclCommGetAsyncError: a thread of mine has bad news
values;values;all_reduce of 1024 bfloat16: 1 wrong
past;values;all_reduce of 1024 float: 1 wrong.*; and [0-9]+ more cases
END
probe 1 FAULTY_MODE=values
out_lacks 'of [0-9]+ (float|half).*wrong'
probe 1 FAULTY_MODE=hang
cell_is all_reduce 0 hang
cell_is all_reduce 1 hang
cell_is send_both 1 'done'
probe 1 FAULTY_MODE=launch FAULTY_OP=recv
cell_is all_reduce 0 'done'
cell_is send_both 0 launch

# --- only rank 1: that one is blamed, and rank 0 has waited for it
while read -r mode stage; do
    probe 1 FAULTY_MODE="$mode" FAULTY_RANK=1
    cell_is all_reduce 0 waiting
    cell_is all_reduce 1 "$stage"
    cell_is send_both 0 'done'
    out_has '"message": "waited for rank 1'
done <<'END'
launch launch
sync sync
hang hang
sync-hang hang
async-hang last error
crash launch
END
probe 1 FAULTY_MODE=crash FAULTY_RANK=1
[ -n "${CLI_SANITIZE:-}" ] || out_has 'killed by signal 11 \(.*\) in launch: all_reduce of 1024 float'
probe 1 FAULTY_MODE=values FAULTY_RANK=1
cell_is all_reduce 0 'done'
cell_is all_reduce 1 values
probe 1 FAULTY_MODE=init FAULTY_RANK=0
cell_is init 0 init
cell_is init 1 waiting
out_has 'ncclCommInitRank: the network is on fire'
probe 1 FAULTY_MODE=init-hang FAULTY_RANK=1
cell_is init 0 waiting
cell_is init 1 hang
probe 1 FAULTY_MODE=destroy-hang FAULTY_RANK=1
cell_is init 0 'done'
cell_is init 1 hang
out_has 'in destroy: ncclCommDestroy'

# --- nothing is left behind, and what others left is still there
mkdir "$work/traces"
expect 1 env -u MOTET_TRACE_DIR XDG_RUNTIME_DIR="$work/traces" FAULTY_MODE=crash \
    "$motet" probe -T "$deadline" --lib "$faulty" --only all_reduce
[ -z "$(ls "$work/traces")" ] || fail "traces are left: $(ls "$work/traces")"
FAULTY_MODE=load-hang XDG_RUNTIME_DIR=$work/traces "$motet" probe --lib "$faulty" >"$work/out" 2>&1 &
pid=$!
within_a_minute sh -c "ls -d '$work'/traces/motet-probe-*" >/dev/null || fail "there is no folder for traces"
kill $pid
wait $pid || true
within_a_minute all_are_gone || fail "ranks outlive the probe"
expect 0 env FAULTY_MODE=load-fork XDG_RUNTIME_DIR="$work/traces" "$motet" probe --lib "$faulty" --only device
[ -z "$(ls "$work/traces")" ] || fail "an interrupted probe's traces are left: $(ls "$work/traces")"
within_a_minute all_are_gone || fail "processes of the probe are still there"

# --- cards without AtomicOps, where the refusal surfaces at each of the three places
fake=$build/tests/fakehip
if [ -e "$fake/libdeclares_hostcall.so" ] && [ -z "${CLI_SANITIZE:-}" ]; then
    own_path=${LD_LIBRARY_PATH:-}
    export LD_LIBRARY_PATH=$fake${own_path:+:$own_path} MOTET_MAX_CTAS=2
    unset MOTET_DEVICE
    for where in launch last sync; do
        expect 1 env FAKEHIP_ATOMICS=0 FAKEHIP_REFUSE=$where "$motet" probe --device hip \
            --lib "$fake/libdeclares_hostcall.so" --lib ours --only device,init,all_reduce,barrier
        out_has '^card 1: .*, gfx1100, [0-9a-f]{4}:[0-9a-f]{2}:00\.0'
        out_has '^  all_reduce +FAIL launch +FAIL launch +ok [0-9.]+ ms +ok [0-9.]+ ms$'
        out_has "^  A all_reduce, card 1: launch: .*HIP failure 401 '"
        out_has '^  why: .motet probe --gate-kernels'
    done
    expect 0 env FAKEHIP_ATOMICS=0 "$motet" probe --device hip --only device,one_rank,all_reduce,send_1_to_0
    out_lacks '^root port'
    out_has '^no other library: '
    # what did not come back is not run again, unless that is asked for
    stages=$MOTET_STATE_DIR/stages
    MOTET_TRACE_DIR=$work FAULTY_MODE=load-hang "$motet" probe --device hip --lib "$faulty" --only device >/dev/null 2>&1 &
    pid=$!
    within_a_minute sh -c "ls '$stages'/probe.load* >/dev/null" || fail "the stage was not written ahead"
    kill -9 $pid
    wait $pid || true
    expect 2 "$motet" probe --device hip --lib "$faulty" --only device
    out_has '^load +not run$'
    out_has '^  A load: not run: it began .* and did not come back; --repeat runs it$'
    expect 0 "$motet" probe --device hip --lib "$faulty" --only device --repeat
    expect 0 "$motet" probe --device hip --lib "$faulty" --only device
    [ -z "$(ls "$stages")" ] || fail "stages are left: $(ls "$stages")"
    key=probe.load_of_${faulty//\//_}.1
    printf 'boot 00000000-0000-0000-0000-000000000000\npid 1\n' | tee "$stages/$key" >"$stages/probe.else.1"
    expect 0 "$motet" probe --device hip --lib "$faulty" --only device --serving-anyway
    [ "$(ls "$stages")" = probe.else.1 ] || fail "not just the stage that came back is forgotten: $(ls "$stages")"
    rm "$stages/probe.else.1"
    # where the cards are: a root port each, and the links of their slots
    add_card 0000:40:00.0 0000:00:01.1 16.0 16
    add_card 0000:43:00.0 0000:00:02.1 8.0 4
    expect 0 env MOTET_HOST_ROOT="$work/host" "$motet" probe --device hip --only device
    out_has '^card 1: .*, 0000:43:00\.0, root port 0000:00:02\.1, 8\.0 GT/s x4'
    out_has '^root port +0000:00:01\.1 +0000:00:02\.1$'
    out_has '^link +16\.0 GT/s x16 +8\.0 GT/s x4$'
    expect 2 env FAKEHIP_DEVICES=1 "$motet" probe --device hip -n 2
    err_has '2 ranks need as many cards, and of those here 1 can be used'
fi
passed
