#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet params and motet version.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
unset MOTET_OP_TIMEOUT_S NCCL_COMM_ID MOTET_COMM_ID NCCL_CONF_FILE
export HOME=$work

expect 0 "$motet" params
out_has '^MOTET_OP_TIMEOUT_S = 1800 s$'
out_has '^    also read as NCCL_COMM_ID$'
out_has '^    one of: auto cpu gpu cuda hip$'
rows=$(grep -c '^[A-Z_0-9]* = ' "$work/out")
table=$(grep -c '^PARAM(' "$(dirname "$0")/../../src/base/param.def")
[ "$rows" -eq "$table" ] || fail "$rows rows shown, the table has $table"

expect 0 env MOTET_OP_TIMEOUT_S=7 "$motet" params --set
out_has '^MOTET_OP_TIMEOUT_S = 7 s$'
out_has 'set by environment; default 1800 s'
out_lacks '^MOTET_INIT_TIMEOUT_S'

expect 0 env NCCL_COMM_ID=127.0.0.1:5000 "$motet" params --set
out_has '^MOTET_COMM_ID = 127.0.0.1:5000'
out_has 'set by environment, NCCL_COMM_ID'

echo 'MOTET_OP_TIMEOUT_S = 99' >"$work/.nccl.conf"
expect 0 "$motet" params --set
out_has '^MOTET_OP_TIMEOUT_S = 99 s$'
out_has 'set by nccl.conf'
rm "$work/.nccl.conf"

expect 1 env MOTET_OP_TIMEOUT_S=soon "$motet" params
err_has "MOTET_OP_TIMEOUT_S.*soon"
run env MOTET_OP_TIMEOUT=5 "$motet" params
err_has 'MOTET_OP_TIMEOUT_S' # the nearest name

expect 0 "$motet" params --json
is_json "$work/out"
out_has '"name": "MOTET_OP_TIMEOUT_S"'
expect 0 "$motet" params --json --set
is_json "$work/out"

expect 0 "$motet" version
out_has '^motet [0-9.]+ \(NCCL API 2\.27\.7\)$'
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "more than one line"
expect 0 "$motet" version -v
for what in 'device kinds +.*cpu' 'CPU kernels +.*baseline' 'code for NVIDIA +' 'code for AMD +' 'compiler +[a-z]' 'build +' 'optional libraries'; do
    out_has "^$what"
done
# Each library that is built carries the images of its vendors, and lists them.
declare -A carries=([libmotet.so.0]="nvidia amd" [libnccl.so.2]=nvidia [librccl.so.1]=amd)
for library in "${!carries[@]}"; do
    file=$build/src/exports/$library
    [ -e "$file" ] || continue
    expect 0 "$motet" version -v
    out_has "^images in .*/$library(: none)?$"
    expect 0 "$motet" version --lib "$file"
    [ "$(head -n 1 "$work/out")" = "$("$motet" version)" ] || fail "no version line"
    count=0
    for vendor in ${carries[$library]}; do
        while read -r name of target bytes raw; do
            out_has "^  $name +$of +$target +$bytes +$raw$"
            [ "$of" = "$vendor" ] || fail "$name is in the table of $vendor"
            count=$((count + 1))
        done < <(sed -n 's/^ *"motet image \(.*\)\\n"$/\1/p' "$build/images/images_$vendor.c")
    done
    listed=$(grep -Ec '^  [^ ]+ +(nvidia|amd) ' "$work/out" || true)
    [ "$listed" -eq "$count" ] || fail "$library lists $listed images, the build made $count"
    expect 0 "$motet" version --json --lib "$file"
    is_json "$work/out"
done
expect 2 "$motet" version --lib "$work/gone"
err_has "$work/gone: No such file or directory"
expect 2 "$motet" version --lib /bin/sh
err_has '/bin/sh: not built from motet'

expect 0 "$motet" version --json
is_json "$work/out"
out_has '"libraries": \['
out_has '"nccl_version": 22707'
passed
