#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet hostcall: on objects, bundles and libraries that clang 19 makes here, on this
# build's code, on what is cut off, packed or none.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"

expect 64 "$motet" hostcall
err_has 'motet hostcall: need a file$'
expect 64 "$motet" hostcall --json
err_has "motet hostcall: unknown or ambiguous option '--json'"
expect 0 "$motet" hostcall --help
out_has '^usage: motet hostcall FILE'

# one_line PATTERN: it is all that stands on stdout.
one_line() {
    out_has "$1"
    [ "$(wc -l <"$work/out")" -eq 1 ] || fail "not one line"
}

# What cannot be read, and what has no code for GPUs.
mkdir "$work/folder"
: >"$work/empty"
echo "no object" >"$work/text"
for pair in gone:'No such file or directory' folder:'a folder, need a file' \
    empty:'an empty file' text:'no code for AMD GPUs was found'; do
    expect 2 "$motet" hostcall "$work/${pair%%:*}"
    err_has "^motet hostcall: $work/${pair%%:*}: ${pair#*:}$"
    [ ! -s "$work/out" ] || fail "something on stdout"
done
expect 2 "$motet" hostcall "$motet"
err_has "^motet hostcall: $motet: built from motet; its packed code is not read$"

# Packed code, by its first bytes.
printf 'CCOB\2\0\1\0 and more' >"$work/packed"
printf 'KPAK\1\0\0\0 and more' >"$work/some.so"
printf '\177ELF and no more' >"$work/head"
expect 2 "$motet" hostcall "$work/packed" "$work/some.so" "$work/head"
out_has "^$work/packed: unknown: compressed \(CCOB\)$"
out_has "^$work/some.so: unknown: a kpack archive$"
out_has "^$work/head: unknown: it ends within its header$"
[ ! -s "$work/err" ] || fail "something on stderr"

expect 0 "$motet" version -v
if grep -Eq '^optional libraries +none' "$work/out"; then
    skip "this build reads no code objects; the rest was checked"
fi

# This build's own declare none.
shopt -s nullglob
for image in "$build"/images/amd/*.co; do
    expect 0 "$motet" hostcall "$image"
    one_line "^$image: gfx[0-9a-z:+-]+: [1-9][0-9]* kernels, 0 declare a hostcall$"
done

command -v clang-19 >/dev/null && command -v ld.lld-19 >/dev/null ||
    skip "no clang-19 with lld; the rest was checked"

# Without optimisation every kernel lists all hidden arguments, as does one that calls
# what it does not know. `calls` is the only one of `two` that does.
cat >"$work/one.hip" <<'END'
#define KERNEL extern "C" __attribute__((global))
KERNEL void plain(int *p) { *p = 3; }
END
cat "$work/one.hip" - >"$work/two.hip" <<'END'
KERNEL void calls(int *p, int (*f)(int)) { *p = f(*p); }
END
cat "$work/one.hip" - >"$work/many.hip" <<'END'
#define MORE(n) KERNEL void more_##n(int *p) { *p = n; }
MORE(1) MORE(2) MORE(3) MORE(4) MORE(5) MORE(6) MORE(7) MORE(8)
END

# make SOURCE OUTPUT OPTION...
make() {
    clang-19 -x hip --cuda-device-only -nogpulib -nogpuinc "${@:3}" "$work/$1.hip" \
        -o "$work/$2" 2>"$work/err" || fail "clang-19 does not make $2"
}
bare=(--no-gpu-bundle-output --offload-arch=gfx1100)
make one none.co -O3 "${bare[@]}"
make two some.co -O3 "${bare[@]}"
make many all.co -O0 "${bare[@]}"
make one none.bundle -O3 --offload-arch=gfx1100 --offload-arch=gfx90a:xnack+
make two some.bundle -O3 --offload-arch=gfx1100 --offload-arch=gfx1201
make one packed.bundle -O3 --offload-compress --offload-arch=gfx1100

expect 0 "$motet" hostcall "$work/none.co"
one_line "^$work/none.co: gfx1100: 1 kernels, 0 declare a hostcall$"
[ ! -s "$work/err" ] || fail "something on stderr"
expect 1 "$motet" hostcall "$work/some.co"
one_line "^$work/some.co: gfx1100: 2 kernels, 1 declare a hostcall: calls$"
expect 1 "$motet" hostcall "$work/all.co"
one_line "^$work/all.co: gfx1100: 9 kernels, 9 declare a hostcall:( (plain|more_.)){8} …$"

expect 0 "$motet" hostcall "$work/none.bundle"
out_has "^$work/none.bundle: gfx1100: 1 kernels, 0 declare a hostcall$"
out_has "^$work/none.bundle: gfx90a:xnack\+: 1 kernels, 0 declare a hostcall$"
[ "$(wc -l <"$work/out")" -eq 2 ] || fail "not a line for each target"
expect 1 "$motet" hostcall "$work/some.bundle"
out_has "^$work/some.bundle: gfx1100: 2 kernels, 1 declare a hostcall: calls$"
out_has "^$work/some.bundle: gfx1201: 2 kernels, 1 declare a hostcall: calls$"
expect 2 "$motet" hostcall "$work/packed.bundle"
one_line "^$work/packed.bundle: unknown: compressed \(CCOB\)$"

# In a library: bundles one after the other, as two translation units leave them.
# library OUTPUT FILE...
library() {
    local output=$1
    shift
    {
        echo '.section .hip_fatbin, "a", @progbits'
        for file in "$@"; do
            printf '.balign 4096\n.incbin "%s"\n' "$work/$file"
        done
    } >"$work/fatbin.s"
    clang-19 --target=x86_64-linux-gnu -fuse-ld=lld-19 -nostdlib -shared \
        "$work/fatbin.s" -o "$work/$output" 2>"$work/err" ||
        fail "clang-19 does not make $output"
}
library librccl.so none.bundle some.bundle
expect 1 "$motet" hostcall "$work/librccl.so"
[ "$(wc -l <"$work/out")" -eq 4 ] || fail "not a line for each target of each bundle"
[ "$(grep -c '1 declare a hostcall: calls$' "$work/out")" -eq 2 ] || fail "not two declare"
library libpacked.so packed.bundle
expect 2 "$motet" hostcall "$work/libpacked.so"
one_line "^$work/libpacked.so: unknown: compressed \(CCOB\)$"

# Cut off: what is there is told, and that it is not all.
head -c 1000 "$work/none.co" >"$work/cut.co"
expect 2 "$motet" hostcall "$work/cut.co"
one_line "^$work/cut.co: gfx1100: unknown: "
head -c 4200 "$work/none.bundle" >"$work/cut.bundle"
expect 2 "$motet" hostcall "$work/cut.bundle"
one_line "^$work/cut.bundle: unknown: no whole bundle of code for GPUs$"
head -c 9000 "$work/librccl.so" >"$work/cut.so"
expect 2 "$motet" hostcall "$work/cut.so"
one_line "^$work/cut.so: unknown: its table of sections is cut off or damaged$"

# Several files: one that declares decides, then one that is not known, then none.
expect 1 "$motet" hostcall "$work/gone" "$work/some.co" "$work/none.co"
err_has "$work/gone: No such file or directory$"
[ "$(wc -l <"$work/out")" -eq 2 ] || fail "not a line for each file that can be read"
expect 2 "$motet" hostcall "$work/none.co" "$work/cut.co"
expect 2 "$motet" hostcall "$work/none.co" "$work/gone"
expect 0 "$motet" hostcall "$work/none.co" "$work/text"
err_has "$work/text: no code for AMD GPUs was found$"

# The doctor reads what it prints.
"$motet" hostcall "$work/librccl.so" >"$work/listing" || true
run "$motet" doctor --read "$work/listing"
out_has '^warn +RCCL_NEEDS_HOSTCALL .*librccl.so \(gfx1100\)$'
out_has '^warn +RCCL_NEEDS_HOSTCALL .*librccl.so \(gfx1201\)$'
passed
