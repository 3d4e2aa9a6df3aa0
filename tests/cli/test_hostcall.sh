#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet hostcall: on this build's own code, on what is none, and on files that
# tests/images makes, byte by byte and with clang 19. There --json is compared with
# llvm-readelf; here the words, the gate, the difference of two builds and the choice of
# an image are looked at.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
images=$(dirname "$0")/../images

expect 64 "$motet" hostcall
err_has 'motet hostcall: need a file'
expect 64 "$motet" hostcall --frob
err_has "motet hostcall: unknown or ambiguous option '--frob'"
expect 0 "$motet" hostcall --help
out_has '^usage: motet hostcall '

# images_are N: that many lines of images; what else is said of each is indented.
images_are() {
    local lines
    lines=$(grep -Ec '^[^ ].*: (unknown: |[0-9]+ kernels, )' "$work/out" || true)
    [ "$lines" -eq "$1" ] || fail "$lines images, wanted $1"
    checks=$((checks + 1))
}

# What cannot be read, and what has no code for GPUs.
: >"$work/empty"
echo "no object" >"$work/text"
for pair in gone:'No such file or directory' empty:'an empty file' \
    text:'no code for AMD GPUs was found'; do
    expect 2 "$motet" hostcall "$work/${pair%%:*}"
    err_has "^motet hostcall: $work/${pair%%:*}: (offset 0: )?${pair#*:}$"
    [ ! -s "$work/out" ] || fail "something on stdout"
done
mkdir "$work/folder"
expect 2 "$motet" hostcall "$work/folder"
expect 2 "$motet" hostcall --gate "$work/folder"

expect 0 "$motet" version -v
if grep -Eq '^optional libraries +none' "$work/out"; then
    skip "this build reads no code objects; the rest was checked"
fi

# This build's own declare none, alone and in the libraries that carry them.
shopt -s nullglob
own=("$build"/images/amd/*.co)
for image in "${own[@]}"; do
    expect 0 "$motet" hostcall "$image"
    out_has "^$image: gfx[0-9a-z:+-]+: [1-9][0-9]* kernels, 0 declare a hostcall$"
    images_are 1
done
for library in "$build"/src/exports/{librccl.so.1,libmotet.so}; do
    [ -e "$library" ] || continue
    if [ ${#own[@]} -eq 0 ]; then
        expect 2 "$motet" hostcall "$library"
        continue
    fi
    expect 0 "$motet" hostcall --gate "$library"
    images_are ${#own[@]}
    for image in "${own[@]}"; do
        out_has "SHA-256 $(sha256sum <"$image" | cut -d ' ' -f 1)$"
    done
    objcopy --strip-all "$library" "$work/stripped.so" 2>/dev/null || continue
    expect 0 "$motet" hostcall "$work/stripped.so"
    images_are ${#own[@]}
done

# Another user looks into it, too.
chmod 755 "$work"
command -v python3 >/dev/null || skip "no python3; this build's own code was checked"
run python3 "$images/check.py" "$motet" "$work/made"
left_out=
case $status in
0) sed 's/^/images: /' "$work/out" ;;
77) left_out=$(tail -n 1 "$work/out") ;;
*) fail "tests/images/check.py" ;;
esac
made=$work/made/good
[ -e "$made" ] || skip "$left_out; this build's own code was checked"

# A library of seven targets that declares nowhere.
for library in /usr/lib/*/librocrand.so.1; do
    run python3 "$images/check.py" --of "$library" "$motet"
    case $status in
    0 | 77) cat "$work/out" ;;
    *) fail "tests/images/check.py --of $library" ;;
    esac
    expect 0 "$motet" hostcall --gate "$library"
    break
done

# The words.
calls=$made/bare_objects/calls.co none=$made/bare_objects/none.co
expect 0 "$motet" hostcall "$none"
out_has "^$none: gfx1100: 1 kernels, 0 declare a hostcall$"
[ ! -s "$work/err" ] || fail "something on stderr"
expect 1 "$motet" hostcall "$calls"
out_has "^$calls: gfx1100: 2 kernels, 1 declare a hostcall: calls$"
out_has 'class: conservative'
expect 1 "$motet" hostcall "$made/bare_objects/prints.co"
out_has 'class: real'
expect 1 "$motet" hostcall "$made/bare_objects/bare.co"
out_has 'class: unknown'
expect 1 "$motet" hostcall "$made/bare_objects/many.co"
out_has '700 kernels, 234 declare a hostcall:( kernel_[0-9]+){8} …$'
expect 1 "$motet" hostcall --names "$made/bare_objects/many.co"
out_has ' kernel_699( |$)'
out_lacks '…'
expect 1 "$motet" hostcall "$made/compressed/mixed.so" "$made/libraries/mixed.so"
err_has 'No such file or directory$'
out_has 'elf/ccob v3 zstd/bundle'
expect 1 "$motet" hostcall "$work/made/names"
printf '[[:cntrl:]]' >"$work/pattern"
! tr -d '\n' <"$work/out" | LC_ALL=C grep -q -f "$work/pattern" || fail "control characters on stdout"

# One that declares decides, then one that is not known, then none.
cut=$work/cut.co
head -c 400 "$none" >"$cut"
expect 2 "$motet" hostcall "$cut"
grep -q "$cut: .*offset [0-9]" "$work/out" "$work/err" || fail "no place in what is said"
expect 1 "$motet" hostcall "$work/gone" "$calls" "$none"
expect 1 "$motet" hostcall "$cut" "$calls"
expect 2 "$motet" hostcall "$none" "$cut"
expect 2 "$motet" hostcall "$none" "$work/gone"

# The gate: what is planted fails it, what is allowed does not, what cannot be read is open.
mkdir "$work/tree"
cp "$none" "$work/tree/fine.co"
expect 0 "$motet" hostcall --gate "$work/tree"
cp "$calls" "$work/tree/planted.co"
expect 1 "$motet" hostcall --gate "$work/tree"
err_has "$work/tree/planted.co: .*calls"
printf '# never launched\n\nother\ncal?s   # because\n' >"$work/allow"
expect 0 "$motet" hostcall --gate --allow "$work/allow" "$work/tree"
printf 'call\nCALLS\nxcalls\n' >"$work/allow"
expect 1 "$motet" hostcall --gate --allow "$work/allow" "$work/tree"
expect 1 "$motet" hostcall --gate --json --allow "$work/allow" "$work/tree"
is_json "$work/out"
out_has '"passed": false'
out_has '"kernel": "calls"'
printf 'calls\n' >"$work/allow"
cp "$cut" "$work/tree"
expect 2 "$motet" hostcall --gate --allow "$work/allow" "$work/tree"
expect 2 "$motet" hostcall --gate --allow "$work/gone" "$work/tree/fine.co"
expect 64 "$motet" hostcall --allow "$work/allow" "$work/tree/fine.co"
# What is named has something to be looked at, also beside what passes.
for named in "$work/text" "$work/folder"; do
    expect 0 "$motet" hostcall "$none" "$named"
    expect 2 "$motet" hostcall --gate "$none" "$named"
    out_has '^gate: undecided: '
    err_has "^motet hostcall: $named: no code for AMD GPUs was found$"
    expect 1 "$motet" hostcall --gate "$named" "$calls"
done

# Which image a GPU loads.
fat=$made/bundles/plain.hipfb
expect 1 "$motet" hostcall --target gfx90a:xnack- "$fat"
out_lacks ': gfx1201: '
out_has 'gfx90a:(sramecc\+:)?xnack-'
out_lacks 'xnack\+: [0-9]'
expect 0 "$motet" hostcall --target gfx1100 "$fat"
out_has ': gfx1100: 1 kernels, 0 declare a hostcall$'
expect 2 "$motet" hostcall --target gfx1103 "$fat"
expect 64 "$motet" hostcall --target radeon "$fat"
# With settings that are not known, what it takes with each of them.
expect 1 "$motet" hostcall --target gfx90a "$fat"
out_has ' loads gfx90a:xnack- or gfx90a:xnack\+ or gfx90a:sramecc\+:xnack-: '
expect 1 "$motet" hostcall --target gfx90a:sramecc- "$fat"
out_has ' loads gfx90a:xnack- or gfx90a:xnack\+: '
expect 1 "$motet" hostcall --target gfx942 "$made/bundles/settings.hipfb"
out_has ' loads gfx942:xnack\+ or gfx942: '
expect 0 "$motet" hostcall --target gfx942:xnack+ "$made/bundles/settings.hipfb"
out_has ' loads gfx942:xnack\+: '
# A processor's own image before that of its family; another of the family loads the latter.
expect 0 "$motet" hostcall --target gfx1100 "$made/bundles/generic.hipfb"
expect 1 "$motet" hostcall --target gfx1103 "$made/bundles/generic.hipfb"
out_has ': gfx11-generic: '

# What changed between two builds.
expect 0 "$motet" hostcall --diff "$fat" "$fat"
expect 1 "$motet" hostcall --diff "$none" "$calls"
out_has 'calls'
expect 1 "$motet" hostcall --diff --json "$none" "$calls"
is_json "$work/out"
expect 2 "$motet" hostcall --diff "$none" "$work/gone"
out_lacks removed
# One that lost all its code; one that cannot be read; two without any.
expect 1 "$motet" hostcall --diff "$none" "$work/text"
out_has '^removed: gfx1100: 1 kernels, 0 with a hostcall, '
expect 1 "$motet" hostcall --diff "$work/folder" "$none"
out_has '^added: '
expect 2 "$motet" hostcall --diff "$work/text" "$work/text"
out_lacks .
expect 2 "$motet" hostcall --diff "$none" "$cut"
out_lacks .
expect 64 "$motet" hostcall --diff "$none"

# The doctor reads what it prints, of packed code, too.
cp "$made/compressed/v3_zstd.ccob" "$work/librccl.so"
for file in "$work/librccl.so" "$made/packs/wheel_none/lib/librccl.so"; do
    "$motet" hostcall "$file" >"$work/listing" || true
    run "$motet" doctor --read "$work/listing"
    out_has '^warn +RCCL_NEEDS_HOSTCALL .*librccl.so \(gfx1100\)$'
done
[ -z "$left_out" ] || skip "$left_out"
passed
