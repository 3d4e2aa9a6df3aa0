#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make check: lints, then every test. Stages run in the order of the table, cheapest
# first, and the first that fails ends the run; the plain run comes last, so that what
# is printed last is ctest's own count. `scripts/check.sh STAGE...` runs some of them.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=scripts/lib-python.sh
. scripts/lib-python.sh

readonly stages='lint wheel fuzz aarch64 asan tsan plain'

stage_lint() {
    build_preset dev
    run_tests build/dev -L lint
}

# Ten seconds of each fuzzer, from the inputs in the tree, with the same random numbers each time.
stage_fuzz() {
    have clang-19 || {
        skipped+=("fuzz: clang-19 is not installed")
        return
    }
    build_preset fuzz
    run_tests build/fuzz -L fuzz -LE long
}

# The unit tests on the other architecture, under an emulator. Left out are those that
# need what qemu's user mode does not imitate (threads after a fork, limits on memory and
# descriptors, the number of threads, a program that starts itself again), and two that
# are not understood there: the recorder of dead processes hangs, and ranks in network
# namespaces failed to meet once.
readonly not_emulated='^unit\.(fakecuda_memory|join_nodes|recorder|recorder_dead|stream|watch)$'
stage_aarch64() {
    local reason=

    have aarch64-linux-gnu-gcc || reason="aarch64-linux-gnu-gcc is not installed"
    have qemu-aarch64 || reason="qemu-aarch64 is not installed"
    [ -n "$reason" ] || scripts/aarch64-root.sh || reason="no cmocka for arm64 could be had"
    [ -z "$reason" ] || {
        skipped+=("aarch64: $reason")
        return
    }
    build_preset aarch64
    run_tests build/aarch64 -L unit -E "$not_emulated"
}

# What `pip install` gives, in an environment of its own, and the Python in it without PyTorch.
stage_wheel() {
    python_ready || {
        skipped+=("wheel: no python3 of 3.9 or later that can make a virtual environment")
        return
    }
    make_venv build/wheel/venv
    lint_python build/wheel/venv
    install_wheel build/wheel/venv
    python_tests build/wheel wheel
}

# Without the two scripts that mostly wait for deadlines, which are long here.
stage_asan() {
    build_preset asan
    run_tests build/asan -LE 'long|lint|waits'
    count_cases asan
}

# Without the command's scripts: what it does in threads is what the unit tests, the matrix
# and the suites do, and its own processes are nothing to ThreadSanitizer. Nor are parsers, which
# have one thread, and the images.
stage_tsan() {
    build_preset tsan
    run_tests build/tsan -LE 'long|lint|cli|cases|fuzz|gpu-images'
    count_cases tsan
}

# The matrix runs first, so that what it counted can be said before ctest's last word.
stage_plain() {
    build_preset dev
    run_tests build/dev -R matrix -LE 'long|lint'
    count_cases dev
    say "value matrix: ${cases[*]}"
    if [ ${#skipped[@]} -gt 0 ]; then
        printf '== SKIPPED %s\n' "${skipped[@]}"
    fi
    if [ ${#again[@]} -gt 0 ]; then
        printf '== PASSED ONLY ALONE %s\n' "${again[@]}"
    fi
    run_tests build/dev -E matrix -LE 'long|lint'
}

# count_cases PRESET: remember how many cases of the matrix its last run had.
count_cases() {
    local count

    count=$(sed -n 's/^matrix: \([0-9]*\) cases$/\1/p' "build/$1/Testing/Temporary/LastTest.log" |
        awk '{ sum += $1 } END { print sum + 0 }')
    [ "$count" -gt 0 ] || die "no case of the value matrix ran in build/$1"
    cases+=("$count cases in build/$1;")
}

scripts/deps.sh check
skipped=()
cases=()
wanted=${*:-$stages}
for stage in $wanted; do
    [[ " $stages " == *" $stage "* ]] || die "no stage is called '$stage'; there are: $stages"
done
for stage in $wanted; do
    begin=$SECONDS
    say "stage $stage"
    "stage_$stage"
    # The last stage ends with ctest's own words.
    [ "$stage" = plain ] || say "stage $stage: $((SECONDS - begin)) s"
done
