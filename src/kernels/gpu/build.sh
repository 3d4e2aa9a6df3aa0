#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh STEP…: how device code is compiled, for the build (cmake/images.cmake) and for
# `motet kernels build` alike. Its folder holds the sources.
#
#   sources                                    which files are device code
#   probe TARGET SOURCE OUTPUT                 whether the compiler has what it takes
#   stamp                                      what tells these sources from others
#   header                                     the same, for C
#   compile TARGET SOURCE BITCODE [OPTION…]    one file
#   generate TARGET ASSEMBLY BITCODE…          code for all of them
#   assemble TARGET ASSEMBLY OBJECT            AMD's into a code object
#   object TARGET OBJECT                       all of it, for an AMD target
#
# TARGET is ptx or what -mcpu takes for an AMD GPU. CC is the compiler: clang 17 or newer.
# Files meet as bitcode, before code is generated: PTX cannot be linked without NVIDIA's
# tools, and of linked AMD objects a runtime sees the first one's kernels only.
set -eu

here=$(dirname "$0")
sources="small ll stage twoshot pairs ring control"
language="-x c -std=c17 -O3 -ffreestanding -nostdlibinc -nogpulib -ffp-contract=off"
amd="--target=amdgcn-amd-amdhsa"
CC=${CC:-clang}

# PTX 7.0 is what a driver of CUDA 11 reads. A generic target needs version 6; -w, since
# clang 19 warns that it is new.
flags_of() {
    case $1 in
    ptx) flags="--target=nvptx64-nvidia-cuda -march=sm_70 --cuda-feature=+ptx70" ;;
    *-generic) flags="$amd -mcpu=$1 -mcode-object-version=6 -w" ;;
    *) flags="$amd -mcpu=$1 -mcode-object-version=5" ;;
    esac
    case $1 in
    ptx) shown= ;;
    *) shown=-fvisibility=protected ;; # what a runtime finds kernels by
    esac
}

# Every file that an image is made from, this one too: a library takes images of its own
# sources only, whose arguments and arenas are laid out as its own.
stamp() {
    (
        cd "$here"
        LC_ALL=C cat ./*.c ./*.def ./*.h build.sh ../../base/types.h | cksum | tr ' ' -
    )
}

header() {
    printf '/* Made by build.sh. */\n#define MOTET_STAMP "%s"\n' "$(stamp)"
}

probe() {
    flags_of "$1"
    [ "$1" != ptx ] || flags="$flags -S"
    # shellcheck disable=SC2086 # lists of words
    "$CC" $language $flags $shown "$2" -o "$3"
}

compile() {
    flags_of "$1"
    source=$2 bitcode=$3
    shift 3
    # shellcheck disable=SC2086 # lists of words
    "$CC" $language $flags $shown -I"$here/../.." "$@" -emit-llvm -c "$source" -o "$bitcode"
}

# C has no attribute that says how many threads a block has at most. Without, an AMD
# compiler shares out registers as if they were 1024, and what does not fit goes to memory.
generate() {
    flags_of "$1"
    assembly=$2
    shift 2
    links=
    for bitcode; do
        links="$links -Xclang -mlink-bitcode-file -Xclang $bitcode"
    done
    threads=$(sed -n 's/^#define MOTET_GPU_THREADS  *//p' "$here/gpu.h")
    # shellcheck disable=SC2086 # lists of words
    "$CC" $language $flags $shown -DMOTET_STAMP="\"$(stamp)\"" -Xclang -disable-llvm-passes \
        $links -emit-llvm -S "$here/stamp.c" -o "$assembly.open.ll"
    sed "s/ \"target-cpu\"=/ \"amdgpu-flat-work-group-size\"=\"1,$threads\"&/" \
        "$assembly.open.ll" >"$assembly.ll"
    # shellcheck disable=SC2086 # a list of words
    "$CC" $flags -nogpulib -O3 -Xclang -disable-llvm-passes -S "$assembly.ll" -o "$assembly"
    rm "$assembly.open.ll" "$assembly.ll"
}

assemble() {
    flags_of "$1"
    # shellcheck disable=SC2086 # lists of words
    "$CC" $flags "$2" -o "$3"
}

# In a folder of its own, so that a failure leaves nothing and no name has a space.
object() {
    case $2 in
    /*) object=$2 ;;
    *) object=$PWD/$2 ;;
    esac
    here=$(cd "$here" && pwd)
    work=$(mktemp -d "${TMPDIR:-/tmp}/motet-kernels.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    trap 'exit 1' HUP INT TERM
    cd "$work"
    parts=
    for name in $sources; do
        compile "$1" "$here/$name.c" "$name.bc"
        parts="$parts $name.bc"
    done
    # shellcheck disable=SC2086 # a list of words
    generate "$1" all.s $parts
    assemble "$1" all.s all.co
    cp all.co "$object"
}

step=${1:-}
[ $# -eq 0 ] || shift
case $step in
sources) echo "$sources" ;;
stamp | header | probe | compile | generate | assemble | object) "$step" "$@" ;;
*)
    sed -n '3,17s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac
