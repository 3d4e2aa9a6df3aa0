#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make demo: installs what is missing, builds the release preset, and plays the acts.
# Each act prints its command before it runs it, and has 10 s, with PyTorch 60 s. A second
# run installs and builds nothing. Exits with 0 only if no act failed; one that needs a GPU,
# or PyTorch, is skipped where there is none.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# Importing PyTorch alone takes some, more on a machine that does other things as well.
readonly act_seconds=10 torch_act_seconds=60
readonly motet=build/release/tools/motet/motet
readonly traces=build/demo/traces output=build/demo/output
readonly package=build/demo/python/motet

# The acts' ranks are on CPUs unless they say otherwise.
export MOTET_DEVICE=cpu

# To add an act: a row `function | what it shows`, and the function. It runs its
# commands through `play`, and returns 0 if what it saw is what should be seen, 77 if it
# says why it cannot be seen here.
readonly acts='
act_smoke       | 4 CPU ranks exchange real data, every value is checked
act_collectives | every collective, values checked and timed
act_program     | a program written for NCCL, started by motet run
act_killed      | one rank is killed with -9, the others name it
act_status      | motet status tells afterwards who was where
act_doctor      | motet doctor reads what a Proxmox user pasted, and names the line to change
act_hostcall    | motet hostcall: kernels that declare a hostcall, in another library and in ours
act_python      | ranks of a Python script, with the package that a wheel holds
act_ddp         | PyTorch: DistributedDataParallel trains a network through motet
act_gpu         | 2 ranks on NVIDIA GPUs exchange real data, every value is checked
act_radeons     | 2 stand-in Radeons without AtomicOps: one library refused, motet not
'

# play COMMAND...: print it, run it with what is left of the act's time.
play() {
    local words

    printf -v words '%q ' "$@"
    printf '  $ %s\n' "${words% }"
    "$@" </dev/null 2>&1 | sed 's/^/    /'
    return "${PIPESTATUS[0]}"
}

act_smoke() {
    play "$motet" smoke -n 4
}

act_collectives() {
    play "$motet" bench all -np 4 -b 64 -e 64K -f 32 -n 10 -w 2 |
        grep -E '\$ |test starting|type +redop|^ +[0-9]|Out of bounds|FAIL'
}

act_program() {
    play "$motet" run -n 4 -- build/release/examples/allreduce
}

# Rank 1 of 3 kills itself after half a second of all-reduces. The survivors must end by
# themselves, with an error that names it.
act_killed() {
    local status=0 told

    rm -rf "$traces"
    mkdir -p "$traces"
    play env MOTET_TRACE_DIR="$PWD/$traces" "$motet" run -n 3 -- build/release/examples/kill 1 \
        >"$output" || status=$?
    cat "$output"
    told=$(grep -c 'rank [02]: .*rank 1' "$output" || true)
    expect "the status of motet run, 128 + SIGKILL" 137 "$status" &&
        expect "survivors that name rank 1" 2 "$told"
}

# Status 1: a problem was found, which is what it is for.
act_status() {
    local status=0

    play env MOTET_TRACE_DIR="$PWD/$traces" "$motet" status >"$output" || status=$?
    cat "$output"
    expect "the status of motet status" 1 "$status" &&
        expect "whether it names rank 1" yes "$(grep -q 'rank 1' "$output" && echo yes)"
}

# Status 1: the doctor found what is wrong, here a card that is passed with all its functions.
act_doctor() {
    local status=0

    play "$motet" doctor --read tests/cases/proxmox-whole-slot/[!e]* >"$output" || status=$?
    cat "$output"
    expect "the status of motet doctor" 1 "$status" &&
        expect "whether it names the cause" yes \
            "$(grep -q 'error  ATOMICS_VM_MULTIFUNCTION' "$output" && echo yes)"
}

# Status 1: a kernel declares one. Then every kernel of ours, and none does.
act_hostcall() {
    local status=0 offender=build/release/tests/fakehip/libdeclares_hostcall.so

    [ -e "$offender" ] || {
        echo "    skipped: needs clang 19 and lld 19"
        return 77
    }
    ! "$motet" version -v | grep -E "^optional libraries +none" >/dev/null || {
        echo "    skipped: needs libelf and msgpack-c"
        return 77
    }
    play "$motet" hostcall "$offender" >"$output" || status=$?
    cat "$output"
    expect "the status of motet hostcall with that library" 1 "$status" &&
        expect "whether it names the kernel" yes "$(grep -q planted_hostcall "$output" && echo yes)" &&
        play "$motet" hostcall build/release/src/exports/librccl.so.1
}

act_python() {
    local status=0 told script='import array, motet
print(motet.run(lambda comm: comm.all_reduce(array.array("f", [comm.rank]))[0], 4))'

    python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null || {
        echo "    skipped: needs Python 3.9 or later"
        return 77
    }
    play env PYTHONPATH="${package%/*}" python3 -c "$script" >"$output" || status=$?
    cat "$output"
    [ "$status" -eq 0 ] || return "$status"
    told=$(tail -n 1 "$output")
    expect "the sums of ranks 0 to 3" "    [6.0, 6.0, 6.0, 6.0]" "$told"
}

# Each rank imports PyTorch, which takes a core for seconds: two ranks where cores are few.
act_ddp() {
    local ranks=4

    [ -n "$torch" ] || {
        echo "    skipped: needs PyTorch 2.2 or later for python3, Python.h, and a C++ compiler"
        return 77
    }
    [ -e "$package/.built" ] || {
        echo "    the backend for PyTorch $torch was not built: see above"
        return 1
    }
    [ "$(cores)" -ge 4 ] || ranks=2
    play env PYTHONPATH="${package%/*}" OMP_NUM_THREADS=1 \
        "$motet" run -n "$ranks" -- python3 examples/torch/ddp.py
}

# On one GPU the ranks are threads: those of two processes would take turns on it.
act_gpu() {
    local status=0 ranks=-n2

    [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ] || ranks=--threads
    play "$motet" smoke --device cuda "$ranks" >"$output" || status=$?
    cat "$output"
    [ "$status" -ne 2 ] || return 77
    return "$status"
}

# The stand-in for AMD's runtime refuses, as the real one does on a card without AtomicOps,
# what a library launches whose kernels declare a hostcall. Neither card reaches the other.
act_radeons() {
    local status=0 stand_in=build/release/tests/fakehip
    local world=(env LD_LIBRARY_PATH="$PWD/$stand_in" FAKEHIP_ATOMICS=0 FAKEHIP_PEER=none)

    [ -e "$stand_in/libdeclares_hostcall.so" ] || {
        echo "    skipped: needs clang 19 and lld 19"
        return 77
    }
    play "${world[@]}" "$motet" smoke --device hip --lib "$stand_in/libdeclares_hostcall.so" \
        >"$output" || status=$?
    cat "$output"
    expect "the status of motet smoke with that library" 1 "$status" &&
        expect "whether it names the refusal" yes "$(grep -q 'failure 401' "$output" && echo yes)" &&
        play "${world[@]}" "$motet" smoke --device hip
}

expect() { # WHAT WANTED GOT
    [ "$2" = "$3" ] || {
        echo "    $1: expected $2, got '$3'"
        return 1
    }
}

# perform ACT: in a process group of its own, so that a hang ends with the act's time.
perform() {
    local pid watcher status=0 seconds=$act_seconds

    [ "$1" != act_ddp ] || seconds=$torch_act_seconds
    set -m
    ( "$1" ) &
    pid=$!
    ( sleep "$seconds" && kill -KILL -- "-$pid" ) >/dev/null 2>&1 &
    watcher=$!
    set +m
    wait "$pid" 2>/dev/null || status=$?
    kill -KILL -- "-$watcher" 2>/dev/null || true
    wait "$watcher" 2>/dev/null || true
    return "$status"
}

# The version of python3's PyTorch, if motet's backend can be compiled for it.
usable_torch() {
    have "${CXX:-c++}" && python3 -c '
import os, sysconfig, torch
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))
assert tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 2)
print(torch.__version__)' 2>/dev/null
}

# The Python package as a wheel holds it, out of the tree and the release build. Where there
# is a PyTorch, its backend, too: once for each version of either.
pack_python() {
    local words

    mkdir -p "$package/lib"
    cp -r python/motet/. "$package"
    ln -sfn "$PWD/include" "$package/include"
    ln -sfn "$PWD/build/release/src/exports/libmotet.so.0" "$package/lib/libmotet.so.0"
    [ -n "$torch" ] || return 0
    words="$torch $(cat python/motet/torch/*.[ch]pp include/*.h | cksum)"
    [ "$(cat "$package/.built" 2>/dev/null)" != "$words" ] || return 0
    say "building the backend for PyTorch $torch"
    rm -f "$package/.built"
    PYTHONPATH=${package%/*} python3 -m motet.torch build && printf '%s\n' "$words" >"$package/.built"
}

scripts/deps.sh demo
say "building build/release"
build_preset release
cmake --build build/release --parallel "$(cores)" --target fakehip
torch=$(usable_torch || true)
readonly torch
pack_python || true

failed=0
lines=()
while IFS='|' read -r act title; do
    [ -n "$act" ] || continue
    act=${act%"${act##*[! ]}"}
    printf '\n%s:%s\n' "$act" "$title"
    verdict=ok
    status=0
    perform "$act" || status=$?
    case $status in
    0) ;;
    77) verdict=skip ;;
    *)
        verdict=FAILED
        failed=$((failed + 1))
        ;;
    esac
    lines+=("$(printf '%-6s %s' "$verdict" "${title# }")")
done <<<"$acts"

printf '\n'
printf '%s\n' "${lines[@]}"
if [ "$failed" -gt 0 ]; then
    printf 'FAIL: %d of %d acts\n' "$failed" "${#lines[@]}"
    exit 1
fi
next() { # WHAT-TO-TYPE WHAT-IT-DOES
    printf '%-*s %s\n' $((${#motet} + 32)) "$1" "$2"
}
printf 'PASS\n\nNext:\n'
next "$motet --help" "what the command can do"
next "$motet run -n 2 -- ./your_program" "ranks of a program that uses NCCL's API"
next "less README.md" "your first program"
next "make check" "every test"
