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
