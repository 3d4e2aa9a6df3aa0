#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet run --as: what is preloaded, what is refused, what is reported.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
unset LD_PRELOAD VLLM_NCCL_SO_PATH HIPFIRE_RCCL_LIB RANK WORLD_SIZE
cli=$build/tests/cli

# --- refused, with what to type; nothing is started
refused() { # COMMAND SENTENCE WHAT-TO-TYPE
    expect 64 "$motet" run --as rccl -- "$1" argument
    err_has "$2"
    err_has "$3"
}
for command in docker podman nerdctl /usr/bin/docker; do
    refused "$command" 'does not reach into' '-v .*:/opt/motet:ro -e LD_PRELOAD=/opt/motet/librccl\.so\.1 .*-e HIPFIRE_RCCL_LIB='
done
for command in apptainer singularity enroot; do
    refused "$command" 'does not reach into' '--bind .*:/opt/motet:ro --env LD_PRELOAD=/opt/motet/librccl\.so\.1'
done
refused kubectl 'into a pod' 'LD_PRELOAD=/opt/motet/'
for command in ssh pdsh; do
    refused "$command" 'other host' "$command HOST motet run --as rccl -- CMD"
done
for command in sudo su doas pkexec runuser systemd-run; do
    refused "$command" 'drops LD_PRELOAD' "$command ... motet run --as rccl -- CMD"
done
for command in chroot bwrap flatpak; do
    refused "$command" 'another file system' 'put motet there'
done
expect 64 "$motet" run --as mpi -- true
err_has "need nccl or rccl"
expect 64 "$motet" run --lib x -n 1 -- true
err_has -- '--lib needs --as'
expect 64 "$motet" run --as nccl --lib /no/such/lib.so -- true
err_has "/no/such/lib.so.*No such file"
mkdir "$work/with blank"
cp "$build/src/exports/libnccl.so.2" "$work/with blank/"
expect 64 "$motet" run --as nccl --lib "$work/with blank/libnccl.so.2" -- true
err_has 'LD_PRELOAD cannot hold'
echo text >"$work/text.so"
expect 64 "$motet" run --as nccl --lib "$work/text.so" -- true
err_has 'not a shared library'
cp "$(type -P true)" "$work/setuid"
if [ "$(id -u)" -eq 0 ] && chown nobody "$work/setuid" && chmod u+s "$work/setuid"; then
    expect 64 "$motet" run --as nccl -- "$work/setuid"
    err_has 'setuid or setgid'
    err_has 'a copy without these bits'
fi
if file -L /sbin/ldconfig 2>/dev/null | grep -q 'statically\|static-pie'; then
    expect 64 "$motet" run --as nccl -- /sbin/ldconfig -V
    err_has 'linked statically'
fi

if [ "${CLI_SANITIZE:-}" != "" ]; then
    echo "note: a sanitizer's runtime cannot be preloaded; the rest is left out"
    passed
    exit 0
fi

# --- what CMD gets
expect 0 "$motet" run --as nccl -- env
out_has "^LD_PRELOAD=.*/libnccl\.so\.2$"
out_has "^VLLM_NCCL_SO_PATH=.*/libnccl\.so\.2$"
out_lacks '^HIPFIRE_RCCL_LIB='
out_lacks '^(RANK|WORLD_SIZE|MASTER_PORT)='
out_lacks '^\[0\]'
[ ! -s "$work/err" ] || fail "words on stderr"
expect 0 env LD_PRELOAD="$cli/libdummy.so" VLLM_NCCL_SO_PATH=/mine "$motet" run --as rccl -- env
out_has "^LD_PRELOAD=.*/librccl\.so\.1:.*/libdummy\.so$"
out_has '^HIPFIRE_RCCL_LIB=.*/librccl\.so\.1$'
out_has '^VLLM_NCCL_SO_PATH=/mine$'
expect 0 "$motet" run --as nccl -n 2 -- sh -c 'echo "$RANK $LD_PRELOAD"'
out_has '^\[1\] 1 .*libnccl\.so\.2$'
expect 9 "$motet" run --as nccl -- sh -c 'exit 9'
expect 143 "$motet" run --as nccl -- sh -c 'kill -TERM $$'
expect 127 "$motet" run --as nccl -- /no/such/program
expect 0 "$motet" run --as nccl --lib "$build/src/exports/libnccl.so.2" -- "$cli/mapper" 0
out_has 'libnccl\.so\.2'

# --- by its name, as a program's dlopen or DT_NEEDED says it: the drop-in is what is found,
# wherever else there is one
mkdir "$work/foreign"
cp "$cli/libdummy.so" "$work/foreign/libnccl.so.2"
expect 0 env LD_LIBRARY_PATH="$work/foreign" "$cli/mapper" 0 libnccl.so.2
out_has "$work/foreign/libnccl\.so\.2"
expect 0 env LD_LIBRARY_PATH="$work/foreign" "$motet" run --as nccl -- "$cli/mapper" 0.3 libnccl.so.2
out_has '/libnccl\.so\.2'
out_lacks "$work/foreign/"
[ ! -s "$work/err" ] || fail "the drop-in is reported as foreign"

# --- another library with the NCCL ABI, mapped by its path
mkdir "$work/other"
cp "$cli/libdummy.so" "$work/other/librccl.so.1"
expect 0 "$motet" run --as rccl -- sh -c "'$cli/mapper' 0.3 '$work/other/librccl.so.1' && true"
err_has "mapper \(pid [0-9]+\) mapped $work/other/librccl\.so\.1: what it calls there is not motet"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "reported more than once"
expect 0 "$motet" run --as rccl -n 2 -- "$cli/mapper" 0.3 "$work/other/librccl.so.1"
[ "$(grep -c 'is not motet' "$work/err")" -eq 2 ] || fail "not both ranks are reported"
ln -s "$build/src/exports/librccl.so.1" "$work/other/librccl.so"
expect 0 "$motet" run --as rccl -- "$cli/mapper" 0.3 "$work/other/librccl.so" # the drop-in itself
[ ! -s "$work/err" ] || fail "the drop-in is reported as foreign"
passed
