#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet doctor: this machine, archives, differences, a command, and usage.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
cd "$work"
export MOTET_STATE_DIR=$work/state

# Whether PCI or a driver shows a GPU, with which something may be wrong.
has_gpu() {
    local device
    [ ! -e /dev/kfd ] && [ ! -e /dev/nvidiactl ] || return 0
    for device in /sys/bus/pci/devices/*; do
        case $(cat "$device/vendor" "$device/class" 2>/dev/null | tr '\n' ' ') in
        0x1002\ 0x03* | 0x1002\ 0x12* | 0x10de\ 0x03* | 0x1d94\ * | 0x1ed5\ *) return 0 ;;
        esac
    done
    return 1
}
worst=2
! has_gpu || worst=1

# fine COMMAND...: exit 0 or 2, as where nothing is wrong; 1 only where there is a GPU.
fine() {
    run "$@"
    [ "$status" -eq 0 ] || [ "$status" -eq 2 ] || [ "$status" -eq "$worst" ] ||
        fail "'$*' gave $status"
    checks=$((checks + 1))
}

# --- usage
expect 64 "$motet" doctor --read
err_has 'read needs a path'
expect 64 "$motet" doctor --diff one
expect 64 "$motet" doctor --list --diff a b
expect 64 "$motet" doctor --timeout 5
expect 64 "$motet" doctor --timeout soon -- true
expect 64 "$motet" doctor --keep-names
expect 64 "$motet" doctor --explain NO_SUCH_CODE
expect 64 "$motet" doctor --model hidden=0
expect 64 "$motet" doctor --model layers=2
err_has 'lacks hidden='
expect 64 "$motet" doctor --
expect 64 "$motet" doctor --host a -- true
expect 0 "$motet" doctor --list
out_has ATOMICS_OK
expect 0 "$motet" doctor --explain ATOMICS_OK
out_has ATOMICS_OK

# --- this machine
fine "$motet" doctor
out_has 'this machine'
err_lacks .
fine "$motet" doctor --json
is_json out
fine "$motet" doctor --model hidden=4096,layers=32,batch=2,dtype=fp16
echo '{"hidden_size": 64, "num_hidden_layers": 2, "torch_dtype": "float16"}' >config.json
fine "$motet" doctor --model config.json
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work"
    cp "$motet" motet # where nobody may run it
    fine setpriv --reuid=65534 --regid=65534 --clear-groups ./motet doctor
    out_has 'this machine'
fi
if unshare -m sh -c 'mount -t tmpfs none /sys/class' 2>/dev/null; then
    fine unshare -m sh -c 'mount -t tmpfs none /sys/class && exec "$0" doctor' "$motet"
    out_has 'this machine'
fi

# --- archives
expect 0 "$motet" doctor --collect one.tar
err_has 'one.tar: [0-9]+ captures'
expect 0 "$motet" doctor --collect two.tar
[ "$(tar -tf one.tar | grep -vc '^motet-doctor/')" -eq 0 ] || fail "a name outside the folder"
tar -xf one.tar
name=$(uname -n)
case $name in
localhost* | vm | pve | node | ?) ;;
*) ! grep -rqw "$name" motet-doctor/system.txt || fail "the machine's name is in the archive" ;;
esac
fine "$motet" doctor --read one.tar
fine "$motet" doctor --read motet-doctor
fine "$motet" doctor --read - <one.tar
fine "$motet" doctor --json --read one.tar two.tar
is_json out
expect 0 "$motet" doctor --collect named.tar --keep-names
err_has 'all names'
expect 2 "$motet" doctor --collect /no/such/folder/x.tar
expect 2 "$motet" doctor --collect /dev/null
[ -c /dev/null ] || fail "a device was replaced"
mkfifo pipe.tar
expect 2 timeout 60 "$motet" doctor --collect pipe.tar
ln -s two.tar link.tar
expect 2 "$motet" doctor --collect link.tar
echo old >loose.tar
chmod 644 loose.tar
expect 0 "$motet" doctor --collect loose.tar
[ "$(stat -c %a loose.tar)" = 600 ] || fail "others may read the archive"
[ -z "$(find . -name '*.tar.*')" ] || fail "a temporary file is left"
expect 2 "$motet" doctor --read /no/such/file
out_has 'No such file'

# --- what somebody pasted, and a difference
printf 'Unable to open /dev/kfd read-write: No such file or directory\n' >kfd.txt
expect 1 "$motet" doctor --read kfd.txt
out_has KFD_NOT_PASSED
printf 'HSA works\n/sys/class/net/eth0/speed:1000\n' >good.txt
cat kfd.txt good.txt | sed s/1000/10000/ >bad.txt
expect 64 "$motet" doctor --read kfd.txt -- good.txt
expect 1 "$motet" doctor --read -- kfd.txt
expect 0 "$motet" doctor --diff good.txt good.txt
out_has 'no fact differs'
expect 1 "$motet" doctor --diff good.txt bad.txt
out_has '/sys/class/net/eth0/speed: 1000 -> 10000'
out_has KFD_NOT_PASSED
expect 1 "$motet" doctor --json --diff good.txt bad.txt
is_json out
expect 2 "$motet" doctor --diff good.txt /no/such/file
: >empty.txt
expect 2 "$motet" doctor --read empty.txt
head -c 20000 /dev/urandom >noise.bin
expect 2 "$motet" doctor --read noise.bin

# --- a command
fine "$motet" doctor -- sh -c 'echo "level $NCCL_DEBUG $AMD_LOG_LEVEL"; echo complaint >&2'
out_has '^level INFO 3$'
err_has '^complaint$'
fine "$motet" doctor --json -- echo shown
is_json out
err_has '^shown$'
expect 1 "$motet" doctor -- cat kfd.txt
out_has KFD_NOT_PASSED
expect 127 "$motet" doctor -- /no/such/program
token=74$$
fine timeout 60 "$motet" doctor --timeout 1 -- sh -c "sleep $token & sleep $token"
gone() { ! pgrep -f "^sleep $token" >/dev/null; }
within_5s gone || fail "a process of the command is left"
fine timeout 60 "$motet" doctor --timeout 1 -- sh -c "setsid sleep $token & sleep $token"
within_5s gone || fail "a process of another session is left"
"$motet" doctor -- sh -c "yes | head -n 100000; sleep $token" 2>err | head -n 1 >out || true
within_5s gone || fail "a command whose output nobody reads is left"
started() { pgrep -f "^sleep $token" >/dev/null; }
for signal in QUIT TERM; do
    "$motet" doctor -- sleep "$token" >out 2>err &
    pid=$!
    within_5s started || fail "the command was not started"
    kill -s "$signal" "$pid"
    wait "$pid" || true
    within_5s gone || fail "an interrupted command is left"
    out_has 'exit status 143'
done
[ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name 'motet-doctor-*' -newer good.txt -user "$(id -u)")" ] ||
    fail "a folder of logs is left"

# --- a neighbour
expect 2 "$motet" doctor --host no-such-name.invalid
fine "$motet" doctor --host 127.0.0.1
fine "$motet" doctor --vm 104
passed
