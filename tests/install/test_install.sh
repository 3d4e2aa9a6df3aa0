#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_install.sh SOURCE BUILD CC [CXX]
# Installs into a folder, moves that folder, and builds and runs programs that know only
# what was installed: through pkg-config, and through find_package. Two ranks each.
set -euo pipefail

source=$1
build=$2
cc=$3
cxx=${4:-}
work=$build/tests/install/work
prefix=$work/moved
export MOTET_DEVICE=cpu

rm -rf "$work"
mkdir -p "$work"
cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
mv "$work/prefix" "$prefix"

pc=$(find "$prefix" -name nccl.pc)
libdir=$(dirname "$(dirname "$pc")")
export PKG_CONFIG_PATH=$libdir/pkgconfig

for file in include/nccl.h include/motet.h include/rccl.h include/rccl/rccl.h; do
    [[ -f $prefix/$file ]] || { echo "FAIL: $file is not installed" >&2; exit 1; }
done
for file in libnccl.so.2 libnccl.so libnccl_static.a librccl.so.1 libmotet.so libmotet.a; do
    [[ -e $libdir/$file ]] || { echo "FAIL: $file is not installed" >&2; exit 1; }
done

# Code objects in files are those of the probe, which the command finds.
for pair in "$build"/images/gate/probe-gate-*.co; do
    [[ ! -e $pair ]] || cmp "$pair" "$prefix/share/motet/kernels/${pair##*/}"
done
if find "$prefix" -name '*.co' ! -path "$prefix/share/motet/kernels/probe-gate-gfx*.co" | grep .; then
    echo "FAIL: the code objects above are installed" >&2
    exit 1
fi

# DESTDIR, as packagers do it; nothing may go elsewhere.
DESTDIR=$work/dest cmake --install "$build" --prefix /usr >"$work/destdir.log"
[[ $(ls "$work/dest") == usr ]] || { echo "FAIL: DESTDIR was left" >&2; exit 1; }
if grep -rIl --include='*.pc' --include='*.cmake' -e "$build" -e "$source" "$work/dest"; then
    echo "FAIL: the files above name the build or source folder" >&2
    exit 1
fi

# run NAME PROGRAM: with the installed libraries, not those of the build
run() {
    LD_LIBRARY_PATH=$libdir timeout 60 "$2" || {
        echo "FAIL: $1 exits with $?" >&2
        exit 1
    }
    echo "ok: $1"
}

# shellcheck disable=SC2046 # flags are words
for package in nccl motet; do
    "$cc" -std=c99 "$source/tests/install/consumer/all_reduce.c" -o "$work/pc_c_$package" \
        $(pkg-config --cflags --libs "$package")
    run "C through pkg-config $package" "$work/pc_c_$package"
done
[[ $(pkg-config --modversion nccl) == 2.27.7 ]] || { echo "FAIL: nccl.pc's version" >&2; exit 1; }

# An engine that compiles the finder in, and links nothing of motet.
finder=$(dirname "$(find "$prefix" -path '*/motet/find/find.h')")
[[ $(find "$finder" -name '*.c' | wc -l) -eq 3 ]] || { echo "FAIL: the finder is not three C files" >&2; exit 1; }
"$cc" -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -I"$finder" \
    "$source/tests/install/consumer/engine.c" "$finder"/*.c -o "$work/engine" -ldl
HIPFIRE_ROCM_PATH=/nonexistent "$work/engine" >"$work/engine.out"
if [[ $(grep -c '^  /nonexistent/lib.*librccl.so.*: absent$' "$work/engine.out") -ne 6 ]] ||
    ! grep -q '^one GPU only: .*set HIPFIRE_RCCL_LIB=/path/to/librccl.so$' "$work/engine.out"; then
    echo "FAIL: the engine without RCCL says:" >&2
    cat "$work/engine.out" >&2
    exit 1
fi
HIPFIRE_RCCL_LIB=$libdir/librccl.so.1 "$work/engine" >"$work/engine.out"
if ! grep -q 'librccl.so.1: HIPFIRE_RCCL_LIB names it$' "$work/engine.out"; then
    echo "FAIL: the engine with RCCL says:" >&2
    cat "$work/engine.out" >&2
    exit 1
fi
echo "ok: an engine with the finder compiled in"

if [[ -z $cxx ]]; then
    echo "no C++ compiler: C++ and find_package were not tried" >&2
    exit 77
fi
"$cxx" -std=c++11 -Wall -Wextra -Werror -fsyntax-only -x c++ "$finder/find.h" ||
    { echo "FAIL: find.h is not for C++" >&2; exit 1; }
# shellcheck disable=SC2046
"$cxx" -std=c++11 "$source/tests/install/consumer/all_reduce.cpp" -o "$work/pc_cxx" \
    $(pkg-config --cflags --libs nccl) -pthread
run "C++ through pkg-config nccl" "$work/pc_cxx"

cmake -S "$source/tests/install/consumer" -B "$work/consumer" -DCMAKE_PREFIX_PATH="$prefix" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$work/consumer.log"
cmake --build "$work/consumer" >>"$work/consumer.log"
for program in c_nccl c_motet c_static cxx_nccl cxx_rccl; do
    run "$program through find_package" "$work/consumer/$program"
done
