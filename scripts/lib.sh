# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the scripts share: where the tree is, how they speak, and how a preset is
# configured and built. Source it; it changes to the root of the tree.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
export LC_ALL=C

say() {
    printf '== %s\n' "$*"
}

die() {
    printf '%s: %s\n' "$(basename "$0")" "$*" >&2
    exit 1
}

have() {
    command -v "$1" >/dev/null 2>&1
}

# Number of cores this process may use.
cores() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN
}

# True if cmake is there and reads our presets.
cmake_fits() {
    local version

    have cmake || return 1
    version=$(cmake --version | sed -n '1s/^cmake version //p')
    [ "$(printf '3.22\n%s\n' "$version" | sort -V | head -n 1)" = 3.22 ]
}

# build_preset NAME [-DX=Y ...]: configure where that is due, then build. A folder that
# was configured with the same words is not configured again: ninja does it if needed.
build_preset() {
    local preset=$1 dir=build/$1 generator=() words

    shift
    cmake_fits || die "cmake 3.22 or newer is needed; scripts/deps.sh names its package"
    have ninja || generator=(-G "Unix Makefiles")
    words="$* ${generator[*]} $(cksum <CMakePresets.json)"
    if [ "$(cat "$dir/.configured" 2>/dev/null)" != "$words" ]; then
        rm -f "$dir/CMakeCache.txt"
        cmake --preset "$preset" "${generator[@]}" "$@"
        printf '%s\n' "$words" >"$dir/.configured"
    fi
    cmake --build "$dir" --parallel "$(cores)"
}

# run_tests BUILD CTEST-OPTION...
# Deadlines are tested too, and a machine that others share can be late: up to three tests
# that failed beside others run once more, alone. Not if a sanitizer had found something.
again=()
run_tests() {
    local log=$1/Testing/Temporary/LastTest.log failed=$1/Testing/Temporary/LastTestsFailed.log
    local ctest=(ctest --test-dir "$1" --output-on-failure --no-tests=error --no-label-summary)

    rm -f "$failed"
    "${ctest[@]}" --parallel "$(cores)" "${@:2}" </dev/null && return
    [ -s "$failed" ] && [ "$(wc -l <"$failed")" -le 3 ] || return 1
    ! grep -qE "$finding" "$log" || return 1
    say "once more, alone: $(paste -sd' ' "$failed")"
    again+=("$(paste -sd' ' "$failed")")
    cp "$log" "$log.before"
    "${ctest[@]}" --rerun-failed </dev/null || return 1
    cat "$log.before" >>"$log" # count_cases of check.sh reads it
}
readonly finding='ERROR: [A-Za-z]*Sanitizer|WARNING: ThreadSanitizer|: runtime error: '
