#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# make check-long: what takes too long for every change: 200 kills at random moments,
# 10,000 communicators made and destroyed, buffers past 4 GiB, ten minutes of each
# fuzzer (MOTET_FUZZ_SECONDS changes that). The log of the last run lies in
# bench/results/check-long.log.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

readonly log=bench/results/check-long.log
readonly fuzz_seconds=${MOTET_FUZZ_SECONDS:-600}

long() {
    printf 'motet %s, commit %s\n' "$(sed -n 's/^project(motet VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)" \
        "$(git describe --always --dirty 2>/dev/null || echo unknown)"
    printf '%s, %s, %s cores\n' "$(uname -srm)" "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1)" "$(cores)"
    build_preset dev
    ctest --test-dir build/dev -L long -V --no-tests=error
    if have clang-19; then
        printf 'each fuzzer runs for %s s\n' "$fuzz_seconds"
        build_preset fuzz -DMOTET_FUZZ_SECONDS="$fuzz_seconds" -DMOTET_FUZZ_SEED=0
        ctest --test-dir build/fuzz -L fuzz --output-on-failure --no-tests=error --parallel "$(cores)"
    else
        say "SKIPPED the fuzzers: clang-19 is not installed"
    fi
}

scripts/deps.sh check
long </dev/null 2>&1 | sed "s#$PWD#.#g" | tee "$log.part"
mv "$log.part" "$log"
