#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet probe --gate-kernels and --collect, with cards of tests/fakehip: a refusal of the
# kernel that declares a hostcall is found in each place where a runtime may show it, on the
# card that refuses, and told from every other failure.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
fake=$build/tests/fakehip
pair=$build/images/gate/probe-gate-gfx1100.co
[ -e "$fake/libamdhip64.so.6" ] || skip "there is no $fake/libamdhip64.so.6"
[ -e "$pair" ] || skip "there is no $pair"
[ -z "${CLI_SANITIZE:-}" ] || skip "a runtime that is mapped at run time does not fit a sanitizer"
command -v python3 >/dev/null || skip "python3 is not installed"
export LD_LIBRARY_PATH=$fake${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export MOTET_STATE_DIR=$work/state MOTET_MAX_CTAS=2
mkdir "$MOTET_STATE_DIR"
unset MOTET_DEVICE MOTET_KERNEL_PATH MOTET_HOST_ROOT HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES \
    CUDA_VISIBLE_DEVICES ROCM_PATH HIP_PATH DTK_ROOT MOTET_HIP_LIB AMD_LOG_LEVEL
gate=("$motet" probe --gate-kernels)

# says EXPRESSION: Python's, of the JSON on stdout: `cards`, and cell(card, test).
says() {
    python3 -c '
import json, sys
document = json.load(open(sys.argv[1]))
cards = document["gate"]
def cell(card, test):
    return next(t for t in cards[card]["tests"] if t["test"] == test)
controls = ["hidden", "arguments", "event", "streams", "host", "lds"]
sys.exit(not eval(sys.argv[2]))' "$work/out" "$1" || fail "not so: $1"
    checks=$((checks + 1))
}

# --- a machine without fault: all launches arrive, on both cards, and nothing is left over
expect 0 "${gate[@]}"
out_has '^device 0: .*, gfx1100, [0-9a-f:]{10}\.0, .*AtomicOps to host memory: yes$'
out_has '^device 1: '
[ "$(grep -c '^  hostcall .* stored  *ok$' "$work/out")" -eq 2 ] || fail "not two cards run it"
[ "$(grep -c '^  runs: ' "$work/out")" -eq 2 ] || fail "not two verdicts"
expect 0 "${gate[@]}" --json
is_json "$work/out"
says 'len(cards) == 2 and all(len(c["tests"]) == 8 for c in cards)'
says 'all(t["ok"] and t["stored"] and t["ms"] > 0 for c in cards for t in c["tests"])'
says 'all(c["verdict"] == "runs" and c["atomics"] == "yes" for c in cards)'
[ -z "$(ls "$MOTET_STATE_DIR/stages")" ] || fail "a stage is said not to have come back"

# --- no AtomicOps, on one card or both: the plain kernel runs, the other one is refused,
# wherever the runtime shows it, and the marker is read every time
declare -A key=([launch]=launch [sync]=sync [last]=last_error) stage=([launch]=launch [sync]=sync [last]="last error")
for where in launch sync last; do
    for cards in 0 0,1 1,0; do
        expect 1 env FAKEHIP_ATOMICS="$cards" FAKEHIP_REFUSE="$where" "${gate[@]}" --json
        for card in 0 1; do
            says "cell($card, 'plain')['ok'] and cell($card, 'plain')['stored']"
            says "all(cell($card, c)['ok'] for c in controls)"
            if [ "$cards" = 0 ] || [ "$(cut -d, -f$((card + 1)) <<<"$cards")" = 0 ]; then
                says "cards[$card]['verdict'] == 'refuses hostcall' and cards[$card]['atomics'] == 'no'"
                says "not cell($card, 'hostcall')['ok'] and cell($card, 'hostcall')['refused']"
                says "cell($card, 'hostcall')['stage'] == '${stage[$where]}'"
                says "cell($card, 'hostcall')['${key[$where]}'] == 'hipErrorIllegalState'"
                says "cell($card, 'hostcall')['stored'] is False"
                says "cell($card, 'hostcall')['printed'] == 'Pcie atomics not enabled, hostcall not supported'"
            else
                says "cards[$card]['verdict'] == 'runs' and cell($card, 'hostcall')['ok']"
            fi
        done
    done
    expect 1 env FAKEHIP_ATOMICS=0,1 FAKEHIP_REFUSE="$where" "${gate[@]}"
    out_has '^  plain .* ok +ok +ok +stored +ok$'
    out_has "^  hostcall .* not stored refused: ${stage[$where]}\$"
    out_has '^ +the runtime printed: Pcie atomics not enabled, hostcall not supported$'
    out_has '^  refuses hostcall: .*cannot send AtomicOps to host memory'
    # the doctor takes it as what it is: a probe of that device, and no library's failure
    cp "$work/out" "$work/gate-$where.txt"
    expect 1 "$motet" doctor --read "$work/gate-$where.txt"
    out_has "HOSTCALL_REFUSED_NO_ATOMICS  the probe's hostcall kernel"
    out_has 'on device 0'
done
# one that shows nothing at all: only the marker is missing
expect 1 env FAKEHIP_ATOMICS=0 FAKEHIP_REFUSE=never "${gate[@]}" --json
says "cell(0, 'hostcall')['stage'] == 'values' and cards[0]['verdict'] == 'refuses hostcall'"
says "cell(0, 'hostcall')['last_error'] == 'hipSuccess' and 'no call returned an error' in cell(0, 'hostcall')['message']"

# --- what is no matter of the hostcall is not said to be one
expect 1 env FAKEHIP_LAUNCH=refuse "${gate[@]}" --json
says "all(c['verdict'] == 'nothing runs' for c in cards)"
expect 1 env FAKEHIP_STOP=1 FAKEHIP_STOP_HOW=error FAKEHIP_STOP_CARD=1 "${gate[@]}" --json
says "cards[0]['verdict'] == 'runs' and cards[1]['verdict'] == 'other failure'"
says "cell(1, 'streams')['sync'] == 'hipErrorLaunchFailure' and cell(1, 'streams')['stage'] == 'sync'"
says "all(cell(1, t)['ok'] for t in ['plain', 'hostcall', 'hidden', 'arguments', 'event', 'host', 'lds'])"
# not even refused together with a control is it certain
expect 1 env FAKEHIP_ATOMICS=0 FAKEHIP_STOP=1 FAKEHIP_STOP_HOW=error "${gate[@]}" --json
says "all(c['verdict'] == 'refuses more' for c in cards)"

# --- what never ends costs its deadline once, and what comes behind it on that card
begin=$SECONDS
expect 1 env FAKEHIP_DEVICES=1 FAKEHIP_HANG=probe_gate_hostcall "${gate[@]}" --timeout 3 --json
[ $((SECONDS - begin)) -le 60 ] || fail "it took $((SECONDS - begin)) s"
says "cell(0, 'plain')['ok'] and cell(0, 'hostcall')['stage'] == 'hang'"
says "cell(0, 'hostcall')['launch'] == 'hipSuccess' and cell(0, 'hostcall')['sync'] is None"
says "cell(0, 'hostcall')['ms'] is None"
says "all(cell(0, c)['stage'] == 'not run' for c in controls) and cards[0]['verdict'] == 'other failure'"
expect 1 env FAKEHIP_DEVICES=1 FAKEHIP_HANG=probe_gate_plain "${gate[@]}" --timeout 3
out_has '^  plain .* ok +- +- +unread +hang$'
out_has '^  hostcall .* - +- +- +- +not run$'
[ -z "$(ls "$MOTET_STATE_DIR/stages")" ] || fail "a stage is said not to have come back"
# a stage that an earlier boot did not see the end of is not repeated
address=$(sed -n 's/^device 0: .*, \([0-9a-f:]*\.0\), .*/\1/p' "$work/out")
stale=$MOTET_STATE_DIR/stages/probe.gate_${address//:/_}_hostcall.1
printf 'boot 00000000-0000-0000-0000-000000000000\npid 1\n' >"$stale"
expect 2 env FAKEHIP_DEVICES=1 "${gate[@]}" --json
says "cell(0, 'hostcall')['stage'] == 'not run' and 'did not come back' in cell(0, 'hostcall')['message']"
says "cell(0, 'plain')['ok'] and cards[0]['verdict'] == 'not tried'"
expect 0 env FAKEHIP_DEVICES=1 "${gate[@]}" --serving-anyway
[ ! -e "$stale" ] || fail "a stage that came back is said not to have"

# --- its code: for the card's target, a pair, and found where the user says
expect 2 env FAKEHIP_TARGET=gfx1999,gfx1100 "${gate[@]}" --json
says "cards[0]['verdict'] == 'not tried' and 'no probe-gate-gfx1999.co' in cell(0, 'plain')['message']"
says "cards[1]['verdict'] == 'runs'"
mkdir "$work/code"
cp "$pair" "$work/code/probe-gate-gfx1999.co"
export MOTET_KERNEL_PATH=$work/none:$work/code
expect 2 env FAKEHIP_TARGET=gfx1999 FAKEHIP_DEVICES=1 "${gate[@]}" --json
says "cards[0]['image'] == '$work/code/probe-gate-gfx1999.co'"
says "'its code is for gfx1100, not gfx1999' in cell(0, 'plain')['message']"
cp "$build/images/amd/motet-gfx1100.co" "$work/code/probe-gate-gfx1100.co"
expect 2 env FAKEHIP_DEVICES=1 "${gate[@]}" --json
says "'need a hostcall in probe_gate_hostcall and in no other kernel' in cell(0, 'plain')['message']"
head -c 3000 "$pair" >"$work/code/probe-gate-gfx1100.co"
expect 2 env FAKEHIP_DEVICES=1 "${gate[@]}" --json
says "cards[0]['verdict'] == 'not tried' and 'probe-gate-gfx1100.co' in cell(0, 'plain')['message']"
unset MOTET_KERNEL_PATH

# --- where there is no such gate
expect 2 "${gate[@]}" --device cpu
err_has "^motet probe: --gate-kernels asks AMD's runtime .*: a CPU has no such gate$"
expect 2 "${gate[@]}" --device cuda
err_has "NVIDIA's driver has no such gate$"
expect 2 env FAKEHIP_DEVICES=0 "${gate[@]}"
err_has '^motet probe: no AMD GPU: '
[ ! -s "$work/out" ] || fail "something is on stdout"

# --- nothing is launched where somebody computes on a GPU, of whatever vendor
nvml=$build/tests/cli/nvml
if [ -e "$nvml/libnvidia-ml.so.1" ]; then
    sleep 6000 &
    service=$!
    trap 'kill $service 2>/dev/null || true; rm -rf "$work"' EXIT
    busy=(env LD_LIBRARY_PATH="$nvml:$LD_LIBRARY_PATH" FAKENVML_COMPUTE="$service")
    expect 2 "${busy[@]}" "${gate[@]}"
    err_has '^motet probe: refused: other processes compute on GPUs of this host'
    err_has "^  pid $service: sleep 6000$"
    [ ! -s "$work/out" ] || fail "something is on stdout"
    # facts are collected all the same
    expect 2 "${busy[@]}" "$motet" probe --collect "$work/busy.tar"
    err_has "^  pid $service: sleep 6000$"
    tar -tf "$work/busy.tar" >"$work/out"
    out_has 'motet-doctor/pci\.txt'
    out_lacks 'motet-(gate|probe)'
    # somebody comes in the middle: what was seen until then is shown
    expect 2 "${busy[@]}" FAKENVML_LOG="$work/starts" FAKENVML_AFTER=4 "${gate[@]}" --json
    says "cell(0, 'plain')['ok'] and cell(1, 'lds')['stage'] == 'not run'"
    says "cards[1]['verdict'] == 'not tried'"
    expect 0 "${busy[@]}" "${gate[@]}" --serving-anyway
    err_has '^motet probe: warning: other processes compute'
    kill "$service"
    wait "$service" || true
    trap 'rm -rf "$work"' EXIT # its number may be another's now
fi

# --- everything in one archive, without names, which the doctor reads
host=$(uname -n)
begin=$SECONDS
expect 0 env FAKEHIP_ATOMICS=1,0 FAKEHIP_REFUSE=sync "$motet" probe --collect "$work/all.tar"
[ $((SECONDS - begin)) -lt 240 ] || fail "it took $((SECONDS - begin)) s"
err_has '^.*/all\.tar: [0-9]+ captures, '
mkdir "$work/all"
tar -xf "$work/all.tar" -C "$work/all"
for name in system.txt pci.txt motet-gate.json motet-gate.txt motet-probe.json motet-lib.json \
    motet-hostcall.json motet-version.txt; do
    [ -s "$work/all/motet-doctor/$name" ] || fail "no $name in the archive: $(cat "$work/all/motet-doctor/motet-notes.txt")"
done
cp "$work/all/motet-doctor/motet-gate.json" "$work/out"
says "[c['verdict'] for c in cards] == ['runs', 'refuses hostcall']"
cp "$work/all/motet-doctor/motet-probe.json" "$work/out"
is_json "$work/out"
out_has '"sha256": "[0-9a-f]{64}"'
out_has '"operation": "all_reduce"'
is_json "$work/all/motet-doctor/motet-lib.json"
is_json "$work/all/motet-doctor/motet-hostcall.json"
case $host in
localhost | ??) ;;
*) ! grep -rqwF -- "$host" "$work/all" || fail "the host's name is in the archive" ;;
esac
expect 1 "$motet" doctor --read "$work/all.tar"
out_has "HOSTCALL_REFUSED_NO_ATOMICS  the probe's hostcall kernel"
# whatever hangs, it ends, and what is not there is said
begin=$SECONDS
expect 0 env FAKEHIP_DEVICES=1 FAKEHIP_HANG=probe_gate_plain "$motet" probe --collect "$work/hang.tar" --timeout 3
[ $((SECONDS - begin)) -lt 240 ] || fail "it took $((SECONDS - begin)) s"
tar -xOf "$work/hang.tar" motet-doctor/motet-gate.json >"$work/out"
says "cell(0, 'plain')['stage'] == 'hang'"
# what remembers is in it, too
echo "veto - - - GPU-a GPU-b direct LL values" >"$MOTET_STATE_DIR/paths"
printf 'boot 0\npid 1\nstage load of /home/alice/lib.so\n' \
    >"$MOTET_STATE_DIR/stages/probe.load_of__home_alice_lib.so.1"
expect 0 env USER=alice "$motet" probe --device cpu --collect "$work/cpu.tar"
tar -xOf "$work/cpu.tar" motet-doctor/motet-vetoes.txt >"$work/out"
out_has '^veto '
tar -tf "$work/cpu.tar" >"$work/out"
out_lacks 'gate|alice'
out_has '/motet-stage-0\.txt$'
tar -xOf "$work/cpu.tar" motet-doctor/motet-stage-0.txt >"$work/out"
out_has '^stage load of /home/user-[0-9a-f]+/lib\.so$'
expect 2 "$motet" probe --device cpu --collect "$work/none/all.tar"
err_has "^motet probe: write '.*/none/all\.tar': "

passed
