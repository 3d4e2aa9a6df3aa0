#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet kernels list: on objects that clang 19 made, on this build's, and on what is none.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
seeds=$(dirname "$0")/../fuzz/corpus/codeobj

expect 64 "$motet" kernels
err_has '^usage: motet kernels COMMAND'
expect 64 "$motet" kernels lists
err_has "'lists' is not a command of it; did you mean 'list'"
expect 64 "$motet" kernels list
err_has 'motet kernels list: need a file'
expect 0 "$motet" kernels list --help
out_has '^usage: motet kernels list'

expect 0 "$motet" version -v
if grep -Eq '^optional libraries +none' "$work/out"; then
    expect 2 "$motet" kernels list "$seeds/gfx90a-v5"
    err_has 'this build of motet has no .* and reads no code objects'
    skip "this build reads no code objects; that it says so was checked"
fi

expect 0 "$motet" kernels list "$seeds/gfx90a-v5" "$seeds/hostcall-v5"
out_has 'gfx90a-v5: gfx90a:xnack-, code object v5, 3 kernels, 0 with a hostcall$'
out_has 'hostcall-v5: gfx1201, code object v5, 4 kernels, 4 with a hostcall$'
out_has '^ +12 +0 +260 +64 +16 +5 +0 +0  scratch$'
out_has '^ +8 +400 +0 +64 +6 +2 +0 +0  shared$'
out_has '^ +264 +0 +16\+ .*  calls  hidden: .*, hostcall, '
[ ! -s "$work/err" ] || fail "something on stderr"

# What cannot be read is named; the others are listed all the same.
printf 'no object' >"$work/text"
head -c 200 "$seeds/gfx90a-v5" >"$work/cut"
expect 2 "$motet" kernels list "$work/text" "$seeds/gfx906-v4" "$work/cut" "$work" "$work/gone"
err_has "motet kernels list: $work/text: not an ELF file$"
err_has "motet kernels list: $work/cut: "
err_has "motet kernels list: $work: a folder, need a file$"
err_has "motet kernels list: $work/gone: No such file or directory$"
[ "$(wc -l <"$work/err")" -eq 4 ] || fail "not one line for each bad file"
out_has 'gfx906-v4: gfx906, code object v4, 3 kernels'

expect 2 "$motet" kernels list --json "$seeds/hostcall-v4" "$work/text"
is_json "$work/out"
out_has '"target": "gfx1030"'
out_has '"hostcall": 1'
out_has '"hidden_hostcall_buffer"'
out_has '"error": "not an ELF file"'

# This build's own: for the GPU that the name says, and none declares a hostcall.
shopt -s nullglob
for image in "$build"/images/amd/*.co; do
    target=$(basename "$image" .co)
    expect 0 "$motet" kernels list "$image"
    out_has "^$image: ${target#motet-}(:[a-z+-]*)*, code object v[3-6], [1-9][0-9]* kernels, 0 with a hostcall$"
done
passed
