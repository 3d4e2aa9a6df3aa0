#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet smoke: passes on what is right, fails on what is wrong, and ends.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
export FALSIFIER_LIB=$build/src/exports/libnccl.so.2
falsifier=$build/tests/cli/libfalsifier.so
faulty=$build/tests/cli/libfaulty.so # has no ncclCommInitAll
export FAULTY_LIB=$FALSIFIER_LIB
export MOTET_DEVICE=cpu # also where there are GPUs; test_gpu.sh has those

# What is healthy makes progress within this, on a loaded machine too.
slow=5
[ -z "${CLI_SANITIZE:-}" ] || slow=20

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
out_has '^  "ranks_are": "processes",$'
out_lacks '"once_more"'

# --- all_reduce and all_gather, three types, two sizes
expect 0 "$motet" smoke
for collective in all_reduce all_gather; do
    for type in float half bfloat16; do
        out_has "^values   $collective +$type +1024 elements ok, +1048576 elements ok$"
    done
done

# --- devices
expect 2 "$motet" smoke --device hip
err_has 'no AMD GPU'
expect 64 "$motet" smoke --device tpu
err_has "the device is 'tpu', need auto, cpu, cuda or hip"
expect 0 env -u MOTET_DEVICE "$motet" smoke --device cpu -n 1
last_is PASS
expect 64 "$motet" smoke --host-memory --device cuda
err_has "host-memory has ranks on CPUs, so the device cannot be 'cuda'"

# --- from a parent that ignores SIGCHLD, which is inherited
if command -v python3 >/dev/null; then
    expect 0 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$motet" smoke
    last_is PASS
fi

# --- another library
expect 2 "$motet" smoke --lib /no/such/lib.so
err_has 'open library: .*/no/such/lib.so'
last_is FAIL
for vendor in nccl rccl; do
    expect 2 env "MOTET_${vendor^^}_LIB=/no/such/lib.so" "$motet" smoke --lib $vendor
    err_has "^motet smoke: MOTET_${vendor^^}_LIB=/no/such/lib\\.so: no such file; it is authoritative"
    last_is FAIL
done
expect 2 env MOTET_NCCL_LIB=/no/such/lib.so "$motet" smoke --lib nccl --json
is_json "$work/out"
out_has '^  "error": "MOTET_NCCL_LIB=/no/such/lib\.so: '
out_lacks once_more
expect 0 env MOTET_NCCL_LIB="$falsifier" "$motet" smoke --lib nccl --host-memory --processes
out_has '^library: .*/libfalsifier\.so$'
expect 2 "$motet" smoke --lib "$build/tests/cli/libdummy.so"
err_has 'has no ncclGetVersion: not a library with the NCCL ABI'
expect 2 "$motet" smoke --lib "$falsifier"
err_has 'is not motet, so its ranks want GPU memory.*--host-memory'
expect 0 "$motet" smoke --lib "$build/src/exports/libnccl.so.2"
last_is PASS
out_has '^library: .*/libnccl\.so\.2[0-9.]*$'

# --- ways: a process for each rank, and one process for all, whose communicators are made
# at once; a library that cannot do that is not tried that way
out_has '^motet smoke: ranks=2 \(processes\)'
out_has '^ncclCommInitRank\(n=2\) OK in [0-9.]+ ms, version = 22707$'
out_has '^once more: ranks=2 \(one process\)$'
out_has '^ncclCommInitAll\(n=2\) OK in [0-9.]+ ms, version = 22707$'
[ "$(grep -c '^checked  all_reduce .* ok$' "$work/out")" -eq 2 ] || fail "not checked twice"
expect 0 "$motet" smoke --init-all -n 3
last_is PASS
out_has '^ncclCommInitAll\(n=3\) OK'
out_lacks 'ncclCommInitRank'
expect 0 "$motet" smoke --init-all --threads --json
is_json "$work/out"
out_has '"ranks_are": "threads"'
out_has '"made_by": "ncclCommInitAll"'
expect 0 "$motet" smoke --processes --lib "$build/src/exports/libnccl.so.2"
out_lacks 'ncclCommInitAll'
expect 0 "$motet" smoke --lib "$faulty" --host-memory
last_is PASS
out_has '^not tried: ranks=2 \(one process\), made by ncclCommInitAll: the library has no ncclCommInitAll$'
expect 2 "$motet" smoke --init-all --lib "$faulty" --host-memory
err_has "'.*' has no ncclCommInitAll$"
last_is FAIL
expect 64 "$motet" smoke --threads --processes
err_has '\-\-processes or --threads, not both'
expect 0 "$motet" smoke --lib "$falsifier" --host-memory
last_is PASS

# --- a library that is wrong
expect 1 env FALSIFIER_MODE=bit "$motet" smoke --lib "$falsifier" --host-memory
last_is FAIL
[ "$(grep -Ec '^checked  all_reduce +[0-9]+ cases  [1-9][0-9]* values wrong$' "$work/out")" -eq 2 ] ||
    fail "not found twice"
out_has '^checked  all_gather +[0-9]+ cases  ok$'
for mode in past input; do
    expect 1 env FALSIFIER_MODE=$mode "$motet" smoke --processes --lib "$falsifier" --host-memory
    out_has '^checked  all_reduce +[0-9]+ cases  [1-9][0-9]* values wrong$'
done
expect 1 env FALSIFIER_MODE=bit "$motet" smoke --json --lib "$falsifier" --host-memory
is_json "$work/out"
out_has '^  "pass": false$'
out_has '^  "error": "[0-9]+ values wrong",$'
expect 1 env FALSIFIER_MODE=type "$motet" smoke --processes --lib "$falsifier" --host-memory
last_is FAIL
out_has '^values   all_reduce +float +1024 elements ok, +1048576 elements ok$'
out_has '^values   all_reduce +half +1024 elements: 4 values wrong, +1048576 elements: 4 values wrong$'
out_has '^values   all_gather +half +1024 elements ok, +1048576 elements ok$'
expect 1 env FALSIFIER_MODE=large "$motet" smoke --init-all --lib "$falsifier" --host-memory
last_is FAIL
out_has '^values   all_reduce +float +1024 elements ok, +1048576 elements: 4 values wrong$'
out_has '^checked  all_reduce +[0-9]+ cases  ok$'
expect 1 env FALSIFIER_MODE=async "$motet" smoke --lib "$falsifier" --host-memory
last_is FAIL
[ "$(grep -c 'rank 1: all_reduce: the asynchronous error: ' "$work/err")" -eq 2 ] ||
    fail "the asynchronous error is not told twice"

# --- a library that does not come back, or ends its process
expect 1 env FALSIFIER_MODE=hang "$motet" smoke -T 1 --lib "$falsifier" --host-memory --cold 2
[ "$(grep -c 'no progress for 1 s' "$work/err")" -eq 2 ] || fail "no hang twice"
out_has '^ +2 of 2 were not tried: '
last_is FAIL
expect 1 env FALSIFIER_MODE=crash "$motet" smoke --lib "$falsifier" --host-memory
err_has 'rank 1 \(pid [0-9]+\) was killed by signal 9'
err_has 'ranks 0 to 1 \(pid [0-9]+\) was killed by signal 9'
last_is FAIL
expect 1 env FALSIFIER_MODE=crash "$motet" smoke --json --lib "$falsifier" --host-memory
is_json "$work/out"
out_has '^  "error": "rank 1 .*killed by signal 9'
out_has '^    "error": "ranks 0 to 1 .*killed by signal 9'
# with status 0, as if all were well
expect 1 env FALSIFIER_MODE=exit "$motet" smoke --init-all --lib "$falsifier" --host-memory
err_has 'the library ended the process of a rank, with status 0'
last_is FAIL
expect 1 env FAULTY_MODE=load-exit "$motet" smoke --lib "$faulty" --host-memory
err_has 'the library ended the process of a rank, with status '
last_is FAIL
expect 1 env FAULTY_MODE=load-crash "$motet" smoke --json --lib "$faulty" --host-memory
is_json "$work/out"
# a sanitizer makes an end of the crash
out_has '^  "error": "(rank [01] .*killed by signal|the library ended the process of a rank)'
expect 1 env FAULTY_MODE=load-hang "$motet" smoke --processes -T 1 --lib "$faulty" --host-memory
err_has 'no progress for 1 s'

# --- a rank that SIGKILL does not end: a tracer holds it in the kernel
cat >"$work/hold.py" <<'END'
import ctypes, subprocess, sys, time
PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 0x4206, 0x40
motet = subprocess.Popen(sys.argv[1:])
ranks = []
while len(ranks) < 2 and motet.poll() is None:
    with open("/proc/%d/task/%d/children" % (motet.pid, motet.pid)) as file:
        ranks = file.read().split()
    time.sleep(0.01)
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
if len(ranks) < 2 or libc.ptrace(PTRACE_SEIZE, int(ranks[1]), None, PTRACE_O_TRACEEXIT) != 0:
    motet.kill()
    sys.exit(77)
sys.exit(motet.wait())
END
if command -v python3 >/dev/null && [ -e /proc/$$/task/$$/children ]; then
    run env FALSIFIER_MODE=hang python3 "$work/hold.py" "$motet" smoke -T $slow --lib "$falsifier" --host-memory
    if [ "$status" -ne 77 ]; then
        [ "$status" -eq 1 ] || fail "a rank that is held gave $status"
        err_has 'rank 1 \(pid [0-9]+\) was killed and is not gone: the kernel holds it; it is left behind$'
        out_lacks 'ncclCommInitAll'
    fi
fi

# --- communicators by fresh processes, again and again
cold="--cold 5 --lib $falsifier --host-memory"
# shellcheck disable=SC2086
{
    expect 0 "$motet" smoke $cold
    last_is PASS
    out_has '^cold     ncclCommInitRank\(n=2\) in fresh processes: 5 of 5 ok$'
    out_has '^cold     ncclCommInitAll\(n=2\) in fresh processes: 5 of 5 ok$'
    out_has '^ +init median [0-9.]+ ms, max [0-9.]+ ms$'
    out_has '^ +first all_reduce median [0-9.]+ ms, max [0-9.]+ ms$'
    out_lacks 'failure|not tried'

    # the fourth of all communicators is the third cold start
    export FALSIFIER_COUNT=$work/count FALSIFIER_AT=4
    for way in --processes --init-all; do
        rm -f "$work/count"
        expect 1 env FALSIFIER_MODE=init "$motet" smoke $way $cold
        last_is FAIL
        out_has '^cold     .* in fresh processes: 4 of 5 ok$'
        out_has '^ +first failure: number 3: .*ncclCommInit(Rank|All).* of .*libfalsifier.so.: unhandled system error'
        err_lacks .
        [ "$(wc -c <"$work/count")" -eq 6 ] || fail "$(wc -c <"$work/count") communicators, wanted 6"
    done
    rm -f "$work/count"
    expect 1 env FALSIFIER_MODE=init "$motet" smoke --processes --json $cold
    is_json "$work/out"
    out_has '^    "asked": 5,$'
    out_has '^    "tried": 5,$'
    out_has '^    "ok": 4,$'
    out_has '^      "number": 3,$'
    out_has '"message": "rank 0: ncclCommInitRank of '
    rm -f "$work/count"
    expect 1 env FALSIFIER_MODE=stuck "$motet" smoke --processes -T $slow $cold
    out_has '^cold     .* in fresh processes: 4 of 5 ok$'
    out_has "^ +first failure: number 3: no progress for $slow s"
    # from the fourth on none: three that have to be killed are enough
    rm -f "$work/count"
    expect 1 env FALSIFIER_MODE=stuck FALSIFIER_AT=4+ "$motet" smoke --processes -T $slow $cold --cold 7
    out_has '^cold     .* in fresh processes: 2 of 5 ok$'
    out_has '^ +2 of 7 were not tried: too many had to be killed$'
}
for bad in 0 -1 many 10001; do
    expect 64 "$motet" smoke --cold $bad
    err_has "\-\-cold is '$bad', need 1 to 10000"
done
passed
