#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_exports.sh SOURCE LIBDIR [instrumented]
# Each library shows exactly its list, in the right strength; it needs libc only, no
# newer than glibc 2.34; its name, size and flags are what clients expect. librccl.so.1
# has all that PyTorch's libtorch_hip needs.
# Instrumented builds (sanitizers, coverage) are checked for the lists alone.
set -euo pipefail
export LC_ALL=C

source=$1
libdir=$2
instrumented=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

fail() {
    echo "FAIL: $*" >&2
    failures=$((failures + 1))
}

# Weak: every ncclX and mscclX that has a twin. Strong: everything else.
check_names() {
    local lib=$1 list=$2

    sort -c "$list" || fail "$list is not sorted"
    nm -D --defined-only "$lib" | awk '{ print $3, $2 }' | sort >"$work/shown"
    cut -d' ' -f1 "$work/shown" | diff "$list" - >"$work/diff" ||
        fail "$lib and $list differ (< only in the list, > only in the library):" \
            "$(grep '^[<>]' "$work/diff" | tr '\n' ' ')"
    while read -r name kind; do
        case $name in
        nccl* | msccl*) [[ $kind == W ]] || fail "$lib: $name is $kind, must be weak (W)" ;;
        *) [[ $kind == T ]] || fail "$lib: $name is $kind, must be a strong function (T)" ;;
        esac
        if [[ $kind == W ]] && ! grep -qx "p$name T" "$work/shown"; then
            fail "$lib: $name has no strong twin p$name"
        fi
    done <"$work/shown"
}

check_file() {
    local lib=$1 soname=$2 limit=$3 needed version bytes

    readelf -d "$lib" >"$work/dynamic"
    grep -q "SONAME.*\[$soname\]" "$work/dynamic" || fail "$lib: soname is not $soname"
    for needed in $(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' "$work/dynamic"); do
        case $needed in
        libc.so.6 | libm.so.6 | ld-linux*) ;;
        *) fail "$lib needs $needed; libc, libm and the loader are allowed" ;;
        esac
    done
    grep -q 'FLAGS_1.*NOW.*NODELETE\|FLAGS_1.*NODELETE.*NOW' "$work/dynamic" ||
        fail "$lib: not linked with -z now and -z nodelete"
    grep -q 'SYMBOLIC' "$work/dynamic" || fail "$lib: not linked with -Bsymbolic"
    grep -q 'RUNPATH\|RPATH' "$work/dynamic" && fail "$lib: has a run path"

    readelf -W --version-info "$lib" >"$work/versions"
    grep -q "Version definition section" "$work/versions" &&
        fail "$lib: its own names carry a symbol version"
    version=$(grep -o 'GLIBC_[0-9.]*' "$work/versions" | sort -uV | tail -n 1)
    [[ $(printf '%s\nGLIBC_2.34\n' "$version" | sort -V | tail -n 1) == GLIBC_2.34 ]] ||
        fail "$lib needs $version, GLIBC_2.34 is the newest allowed:" \
            "$(nm -D --undefined-only "$lib" | grep "@$version" | awk '{ print $2 }' | tr '\n' ' ')"

    # Two entries are the compiler's (frame_dummy, and libgcc's look at the CPU's features);
    # a third one would be ours.
    bytes=$(readelf -W -S "$lib" | awk '/ INIT_ARRAY / { sub(/.*INIT_ARRAY/, ""); print $3 }')
    ((16#$bytes <= 16)) || fail "$lib: has constructors (.init_array is 0x$bytes bytes)"

    objcopy --strip-debug "$lib" "$work/stripped"
    bytes=$(stat -c %s "$work/stripped")
    ((bytes < limit)) || fail "$lib: $bytes bytes without debug information, limit is $limit"
}

for row in libmotet.so:libmotet.so.0:20 libnccl.so.2:libnccl.so.2:15 librccl.so.1:librccl.so.1:8; do
    IFS=: read -r file soname mib <<<"$row"
    name=${file%%.*}
    check_names "$libdir/$file" "$source/src/exports/$name.list"
    if [[ -z $instrumented ]]; then
        check_file "$libdir/$file" "$soname" $((mib << 20))
    fi
done
# libtorch_hip binds all its names when it is loaded: one that is missing hides everything else.
nm -D --defined-only "$libdir/librccl.so.1" | awk '{ print $3 }' | sort >"$work/shown"
sort -c "$source/tests/api/torch_hip.list" || fail "torch_hip.list is not sorted"
missing=$(comm -23 "$source/tests/api/torch_hip.list" "$work/shown" | tr '\n' ' ')
[[ -z $missing ]] || fail "librccl.so.1 lacks what libtorch_hip needs: $missing"

[[ $(basename "$(readlink -f "$libdir/libnccl.so.2")") == libnccl.so.2.27.7 ]] ||
    fail "libnccl.so.2 is not a link to libnccl.so.2.27.7"
[[ $(basename "$(readlink -f "$libdir/librccl.so.1")") == librccl.so.1.0 ]] ||
    fail "librccl.so.1 is not a link to librccl.so.1.0"

if ((failures > 0)); then
    echo "$failures failures" >&2
    exit 1
fi
echo "exports: $(cat "$source"/src/exports/*.list | wc -l) names in 3 libraries"
