#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet hostcall: what the GPUs of a machine load of a file, and whether it is refused there;
# on trees of files that stand for /sys. --target, HSA_OVERRIDE_GFX_VERSION, --diff, and how
# a gate's list is read.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
unset HSA_OVERRIDE_GFX_VERSION MOTET_HOST_ROOT

# only_err PATTERN: nothing on stdout.
only_err() {
    out_lacks .
    err_has "$1"
}

# Usage.
expect 64 "$motet" hostcall --target gfx11 "$work"
only_err "motet hostcall: --target is 'gfx11', need a GPU like gfx1100 or gfx90a:xnack-$"
for bad in gfx1100:xnack gfx1100:xnack+:xnack- gfx1100:sramec+ amdgcn ''; do
    expect 64 "$motet" hostcall --target "$bad" "$work"
done
expect 64 "$motet" hostcall --allow /dev/null "$work"
only_err 'motet hostcall: --allow needs --gate$'
expect 64 "$motet" hostcall --diff "$work"
only_err 'motet hostcall: --diff needs two files or folders$'
expect 64 "$motet" hostcall --diff --gate "$work" "$work"
expect 64 "$motet" hostcall --json
only_err 'motet hostcall: need a file$'
mkdir "$work/none"
expect 2 "$motet" hostcall --gate --allow "$work/gone" "$work/none"
only_err "motet hostcall: $work/gone: No such file or directory$"
expect 2 "$motet" hostcall --gate --allow "$work/none" "$work/none"
only_err "motet hostcall: $work/none: Is a directory$"

expect 0 "$motet" version -v
if grep -Eq '^optional libraries +none' "$work/out"; then
    skip "this build reads no code objects; the rest was checked"
fi
for tool in clang-19 ld.lld-19; do
    command -v "$tool" >/dev/null || skip "no $tool; the rest was checked"
done

# `calls` and the two of RCCL's names call what the compiler does not know.
cat >"$work/plain.hip" <<'END'
#define KERNEL extern "C" __attribute__((global))
#define CALLS(name) KERNEL void name(int *p, int (*f)(int)) { *p = f(*p); }
KERNEL void plain(int *p) { *p = 3; }
END
cat "$work/plain.hip" - >"$work/some.hip" <<'END'
CALLS(calls)
END
cat "$work/plain.hip" - >"$work/rccl.hip" <<'END'
CALLS(ncclDevKernel_Generic_1)
CALLS(ncclSymkDevKernel_ReduceScatter)
END
cat "$work/plain.hip" - >"$work/symk.hip" <<'END'
CALLS(ncclSymkDevKernel_ReduceScatter)
END

# make SOURCE OUTPUT OPTION...
make() {
    clang-19 -x hip --cuda-device-only -nogpulib -nogpuinc -fuse-cuid=none -O3 "${@:3}" \
        "$work/$1.hip" -o "$work/$2" 2>"$work/err" || fail "clang-19 does not make $2"
}
two=(--offload-arch=gfx1100 --offload-arch=gfx1201)
make plain plain.bundle "${two[@]}"
make some some.bundle "${two[@]}"
make rccl rccl.bundle "${two[@]}"
make symk symk.bundle "${two[@]}"
make some features.bundle --offload-arch=gfx90a:xnack+ --offload-arch=gfx90a:xnack-
make some mixed.bundle -mcode-object-version=6 --offload-arch=gfx11-generic \
    --offload-arch=gfx1102

# ---- one GPU by name ----

expect 1 "$motet" hostcall --target gfx1201 "$work/some.bundle"
out_has "^$work/some.bundle: gfx1201: 2 kernels, 1 declare a hostcall: calls$"
out_lacks ': gfx1100: '
out_has "^$work/some.bundle: a GPU \(gfx1201\) loads gfx1201: 1 of 2 kernels declare a hostcall; .* not known here$"
expect 0 "$motet" hostcall --target gfx1100:xnack- "$work/plain.bundle"
out_has "^$work/plain.bundle: a GPU \(gfx1100:xnack-\) loads gfx1100: no kernel declares a hostcall$"
expect 2 "$motet" hostcall --target gfx1030 "$work/plain.bundle"
only_err "motet hostcall: $work/plain.bundle: no image that gfx1030 loads$"
expect 1 "$motet" hostcall --target gfx90a:xnack- "$work/features.bundle"
out_has "^$work/features.bundle: gfx90a:xnack-: "
out_lacks ': gfx90a:xnack\+: '
expect 1 "$motet" hostcall --target gfx90a "$work/features.bundle"
out_has ': a GPU \(gfx90a\) loads gfx90a:xnack. or gfx90a:xnack.: 1 of 2 kernels'
# Its own before its family's.
expect 1 "$motet" hostcall --target gfx1102 "$work/mixed.bundle"
out_has ' loads gfx1102: '
out_lacks '-generic'
expect 1 "$motet" hostcall --target gfx1103 "$work/mixed.bundle"
out_has ' loads gfx11-generic: '
# Several bundles, and from each its own best.
cat "$work/plain.bundle" "$work/mixed.bundle" >"$work/two.bundle"
expect 1 "$motet" hostcall --target gfx1100 "$work/two.bundle"
out_has "^$work/two.bundle: gfx1100: 1 kernels, 0 declare"
out_has "^$work/two.bundle: gfx11-generic: 2 kernels, 1 declare"
out_has ': a GPU \(gfx1100\) loads gfx1100 or gfx11-generic: 1 of 3 kernels'

# ---- a machine ----

# gpu BUS NODE TARGET_VERSION FLAGS: a card of AMD's and its link to the processor.
gpu() {
    local port=pci0000:00/0000:00:0$2.0 card=0000:0$1:00.0
    local device=$root/sys/devices/$port/$card
    local node=$root/sys/class/kfd/kfd/topology/nodes/$2
    mkdir -p "$device" "$root/sys/bus/pci/devices" "$node/io_links/0"
    echo 0x1002 >"$device/vendor"
    echo 0x744c >"$device/device"
    echo 0x030000 >"$device/class"
    ln -s "../../../devices/$port/$card" "$root/sys/bus/pci/devices/$card"
    {
        printf 'cpu_cores_count 0\nsimd_count 192\ngfx_target_version %s\n' "$3"
        printf 'location_id %d\ndomain 0\n' $((256 * $1))
    } >"$node/properties"
    printf 'type 2\nnode_from %d\nnode_to 0\nflags %d\n' "$2" "$4" \
        >"$node/io_links/0/properties"
}
# machine NAME: an empty one.
machine() {
    root=$work/$1
    mkdir -p "$root/sys/class/kfd/kfd/topology/nodes/0"
    printf 'cpu_cores_count 16\nsimd_count 0\ngfx_target_version 0\n' \
        >"$root/sys/class/kfd/kfd/topology/nodes/0/properties"
    export MOTET_HOST_ROOT=$root
}

machine pair
gpu 3 1 110000 1
gpu 4 2 110000 13
expect 1 "$motet" hostcall "$work/rccl.bundle"
out_has ': GPU 0000:03:00.0 \(gfx1100\) loads gfx1100: 2 of 3 kernels declare a hostcall, which its AtomicOps carry$'
out_has ': GPU 0000:04:00.0 \(gfx1100\) loads gfx1100: the first classic collective fails here with hipErrorIllegalState \(401\): 2 of 3 kernels'
expect 1 "$motet" hostcall "$work/symk.bundle"
out_has ': GPU 0000:04:00.0 \(gfx1100\) loads gfx1100: 1 of 2 kernels declare a hostcall; without AtomicOps these are refused, and only these: ncclSymkDevKernel_ReduceScatter$'
out_lacks 'first classic collective'
expect 0 "$motet" hostcall "$work/plain.bundle"
[ "$(grep -c ': GPU .* loads gfx1100: no kernel declares a hostcall$' "$work/out")" -eq 2 ] ||
    fail "not both GPUs"

# What is not known.
machine open
gpu 3 1 110000 5
expect 1 "$motet" hostcall "$work/rccl.bundle"
out_has ': GPU 0000:03:00.0 \(gfx1100\) loads gfx1100: 2 of 3 kernels declare a hostcall, those of the classic collectives among them; they are refused if it has no AtomicOps, which is not known here$'
# Damage in an image that a GPU without AtomicOps loads.
machine off
gpu 3 1 120001 13
at=$(grep -obUaP '\x7fELF' "$work/plain.bundle" | tail -1 | cut -d: -f1)
cp "$work/plain.bundle" "$work/damaged.bundle"
printf '%02000d' 0 |
    dd of="$work/damaged.bundle" bs=1 seek=$((at + 64)) conv=notrunc status=none
expect 2 "$motet" hostcall "$work/damaged.bundle"
out_has "^$work/damaged.bundle: gfx1201: unknown: offset [0-9]+: "
out_has ': GPU 0000:03:00.0 \(gfx1201\) loads gfx1201: what it loads could not be read, so '
# In JSON a file of which no image can be read has none.
expect 2 "$motet" hostcall --json "$work/damaged.bundle"
out_has '"target": "gfx1100"'
expect 2 "$motet" hostcall --json --target gfx1201 "$work/damaged.bundle"
is_json "$work/out"
out_lacks '"target": "gfx1201",.*"kernels"'
out_has '"images": \[\]'
out_has '"error": "offset [0-9]'
# Or in the rest of the file.
head -c $((at + 600)) "$work/plain.bundle" >"$work/cut.bundle"
expect 2 "$motet" hostcall "$work/cut.bundle"
out_has ': GPU 0000:03:00.0 \(gfx1201\): not all of the file could be read, so a hostcall is open: offset '
# A card that the file has nothing for.
machine old
gpu 3 1 100300 13
expect 0 "$motet" hostcall "$work/plain.bundle"
out_has ': GPU 0000:03:00.0 \(gfx1030\): the file has no code that it loads'

# The runtime's own variable changes what is loaded: of all GPUs, of one node first.
machine override
gpu 3 1 110003 13
gpu 4 2 110003 13
HSA_OVERRIDE_GFX_VERSION=11.0.0 expect 1 "$motet" hostcall "$work/some.bundle"
[ "$(grep -c '(gfx1103) under HSA_OVERRIDE_GFX_VERSION loads gfx1100: 1 of 2' "$work/out")" -eq 2 ] ||
    fail "not both GPUs"
HSA_OVERRIDE_GFX_VERSION=11.0.0 HSA_OVERRIDE_GFX_VERSION_2=11.0.3 \
    expect 1 "$motet" hostcall "$work/some.bundle"
out_has ': GPU 0000:03:00.0 \(gfx1103\) under HSA_OVERRIDE_GFX_VERSION loads gfx1100: '
out_has ': GPU 0000:04:00.0 \(gfx1103\): the file has no code that it loads'
for bad in 11.0 11.0.0.0 x 64.0.0 -1.0.0 +11.0.0 ' 11.0.0' ''; do
    HSA_OVERRIDE_GFX_VERSION=$bad expect 1 "$motet" hostcall "$work/some.bundle"
    out_has ": GPU 0000:03:00.0 \\(gfx1103\\): the runtime refuses HSA_OVERRIDE_GFX_VERSION '${bad/+/\\+}', "
done
# Where there is no GPU it stands for one.
machine empty
HSA_OVERRIDE_GFX_VERSION=9.0.10 expect 1 "$motet" hostcall "$work/features.bundle"
out_has ': a GPU under HSA_OVERRIDE_GFX_VERSION loads gfx90a:xnack'

# The same as JSON.
export MOTET_HOST_ROOT=$work/pair
expect 1 "$motet" hostcall --json "$work/rccl.bundle" "$work/plain.bundle"
is_json "$work/out"
if command -v python3 >/dev/null; then
    python3 - "$work/out" <<'END' || fail "the JSON does not say what the text says"
import json, sys
top = json.load(open(sys.argv[1]))
assert [(g["gpu"], g["target"], g["atomics"]) for g in top["gpus"]] == [
    ("0000:03:00.0", "gfx1100", "yes"), ("0000:04:00.0", "gfx1100", "no")], top["gpus"]
rccl, plain = top["files"]
assert [l["verdict"] for l in rccl["loads"]] == ["fine", "fails"], rccl["loads"]
assert [l["verdict"] for l in plain["loads"]] == ["fine", "fine"], plain["loads"]
for load in rccl["loads"]:
    (i,) = load["images"]
    assert rccl["images"][i]["target"] == "gfx1100"
    assert (load["kernels"], load["hostcall"], load["classic"]) == (3, 2, True)
assert top["gate"] is None
END
    checks=$((checks + 1))
fi

# A kernel's name is no command for a terminal.
if command -v python3 >/dev/null; then
    python3 - "$(dirname "$0")/../images" "$work/esc.co" <<'END' || fail "no code object"
import sys
sys.path.insert(0, sys.argv[1])
import objects
with open(sys.argv[2], "wb") as out:
    out.write(objects.code_object("gfx1100", (("red\033[31m", True),)))
END
    expect 1 "$motet" hostcall "$work/esc.co"
    out_has 'these are refused, and only these: red\?\[31m$'
    out_lacks "$(printf '\033')"
fi

# The doctor finds what the image lines say, and makes no other fault up.
expect 1 "$motet" hostcall "$work/rccl.bundle"
cp "$work/out" "$work/listing"
unset MOTET_HOST_ROOT
run "$motet" doctor --read "$work/listing"
[ "$(grep -c '^warn  RCCL_NEEDS_HOSTCALL ' "$work/out")" -eq 2 ] || fail "not both images"
[ "$(grep -cE '^(error|warn|unknown|info) ' "$work/out")" -eq 2 ] || fail "other findings"

# It reads a library's images itself, compressed and packed away, too.
mkdir "$work/lib"
make rccl packed.bundle --offload-compress "${two[@]}"
{
    echo '.section .hip_fatbin, "a", @progbits'
    printf '.balign 4096\n.incbin "%s"\n' "$work/packed.bundle"
} >"$work/fatbin.s"
clang-19 --target=x86_64-linux-gnu -fuse-ld=lld-19 -nostdlib -shared "$work/fatbin.s" \
    -o "$work/lib/librccl.so.1" 2>"$work/err" || fail "clang-19 makes no library"
wheel=packs/wheel_zstd-per-kernel
if command -v python3 >/dev/null; then
    python3 - "$(dirname "$0")/../images" "$work" "$wheel" <<'END' || fail "no kpack files"
import os, sys
sys.path.insert(0, sys.argv[1])
import good
for fixture in good.synthetic():
    if fixture.path.startswith(sys.argv[3]):
        path = os.path.join(sys.argv[2], fixture.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(fixture.data)
END
fi
LD_LIBRARY_PATH=$work/lib:$work/$wheel/lib \
    expect 0 "$motet" doctor --collect "$work/facts.tar" --keep-names
tar -xOf "$work/facts.tar" motet-doctor/libraries.txt >"$work/out"
out_has "^$work/lib/librccl.so.1: gfx1201: 3 kernels, 2 declare a hostcall: ncclDevKernel_Generic_1 "
[ ! -d "$work/$wheel" ] || out_has "^$work/$wheel/lib/librccl.so: gfx1100: [0-9]+ kernels, "

# ---- the gate's list ----

cat >"$work/list" <<'END'
   # nothing

nccl*Generic_? # with a remark
  calls	
no#remark
END
expect 0 "$motet" hostcall --gate --allow "$work/list" "$work/some.bundle"
out_has '^gate: passed: 0 kernels with a hostcall are not allowed, 2 are$'
expect 1 "$motet" hostcall --gate --allow "$work/list" "$work/rccl.bundle"
err_has "^motet hostcall: $work/rccl.bundle: gfx1201: kernel ncclSymkDevKernel_ReduceScatter declares a hostcall and is not allowed to$"
err_lacks 'Generic'
out_has '^gate: failed: 2 kernels with a hostcall are not allowed, 2 are$'
expect 1 "$motet" hostcall --gate --target gfx1100 "$work/some.bundle"
[ "$(wc -l <"$work/err")" -eq 1 ] || fail "not only what gfx1100 loads"
expect 2 "$motet" hostcall --gate "$work/cut.bundle"
out_has '^gate: undecided: 0 kernels'
expect 1 "$motet" hostcall --gate --json "$work/some.bundle"
is_json "$work/out"

# ---- folders ----

mkdir -p "$work/tree/deep/er" "$work/tree/void"
cp "$work/plain.bundle" "$work/tree/deep/er/b"
cp "$work/plain.bundle" "$work/tree/a"
echo text >"$work/tree/deep/readme"
: >"$work/tree/deep/empty"
ln -s ../.. "$work/tree/deep/er/loop"
ln -s ../a "$work/tree/deep/link"
ln -s gone "$work/tree/dangling"
mkfifo "$work/tree/pipe"
expect 0 "$motet" hostcall "$work/tree"
[ ! -s "$work/err" ] || fail "something on stderr"
[ "$(grep -c '0 declare a hostcall$' "$work/out")" -eq 4 ] || fail "not each file once"
out_has '^2 files with code for AMD GPUs, 4 images$'
expect 0 "$motet" hostcall --json "$work/tree"
[ "$(grep -c '"path"' "$work/out")" -eq 2 ] || fail "files without code are listed"
expect 2 "$motet" hostcall "$work/tree/void"
err_has "^motet hostcall: $work/tree/void: no code for AMD GPUs was found$"
expect 2 "$motet" hostcall --target gfx1030 "$work/tree"
err_has "^motet hostcall: $work/tree: no image that gfx1030 loads$"
cp "$work/damaged.bundle" "$work/tree/damaged"
expect 2 "$motet" hostcall "$work/tree"
out_has "^$work/tree/damaged: gfx1201: unknown: offset [0-9]+: "
out_has "^$work/tree/deep/er/b: gfx1201: 1 kernels"
# A name is no command for a terminal.
cp "$work/plain.bundle" "$work/tree/$(printf 'x\033[31m\ny')"
run "$motet" hostcall "$work/tree"
out_has "^$work/tree/x.\[31m.y: gfx1201: 1 kernels"
! grep -q "$(printf '\033')" "$work/out" || fail "an escape on stdout"

# ---- two builds ----

expect 0 "$motet" hostcall --diff "$work/some.bundle" "$work/some.bundle"
out_has '^2 images on either side, no difference$'
expect 1 "$motet" hostcall --diff "$work/some.bundle" "$work/rccl.bundle"
out_has '^changed: gfx1100: kernels 2 -> 3, with a hostcall 1 -> 2, class conservative -> conservative$'
out_has '^    SHA-256 [0-9a-f]{64} -> [0-9a-f]{64}$'
out_has '^    declares a hostcall now: ncclDevKernel_Generic_1$'
out_has '^    no longer declares one: calls$'
make some wider.bundle "${two[@]}" --offload-arch=gfx1030
expect 1 "$motet" hostcall --diff "$work/some.bundle" "$work/wider.bundle"
out_has '^added: gfx1030: 2 kernels, 1 with a hostcall, SHA-256 [0-9a-f]{64}$'
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "more than what was added"
expect 1 "$motet" hostcall --diff --json "$work/wider.bundle" "$work/some.bundle"
is_json "$work/out"
expect 0 "$motet" hostcall --diff --target gfx1201 "$work/wider.bundle" "$work/some.bundle"
# A bundle that is put before others is one more, and moves none of them.
make rccl first.bundle --offload-arch=gfx1100
cat "$work/some.bundle" "$work/plain.bundle" >"$work/before.bundle"
cat "$work/first.bundle" "$work/some.bundle" "$work/plain.bundle" >"$work/after.bundle"
expect 1 "$motet" hostcall --diff "$work/before.bundle" "$work/after.bundle"
out_has '^added: gfx1100: 3 kernels, 2 with a hostcall'
[ "$(wc -l <"$work/out")" -eq 1 ] || fail "more than what was added"
# An image that cannot be read is not one without kernels.
expect 1 "$motet" hostcall --diff "$work/plain.bundle" "$work/damaged.bundle"
out_has '^changed: gfx1201: the new one could not be read: offset [0-9]+: '
out_lacks 'kernels'
expect 1 "$motet" hostcall --diff --json "$work/damaged.bundle" "$work/plain.bundle"
is_json "$work/out"
out_has '"error": "offset [0-9]'
expect 2 "$motet" hostcall --diff "$work/damaged.bundle" "$work/damaged.bundle"
out_lacks .
# Folders are compared by what lies where.
mkdir -p "$work/build1/a" "$work/build1/b" "$work/build2/a" "$work/build2/c"
for place in build1/a build1/b build2/a build2/c; do
    cp "$work/some.bundle" "$work/$place/lib"
done
expect 1 "$motet" hostcall --diff "$work/build1" "$work/build2"
out_has '^added: c/lib: gfx1100: '
out_has '^removed: b/lib: gfx1201: '
[ "$(wc -l <"$work/out")" -eq 4 ] || fail "not two added and two removed"
expect 2 "$motet" hostcall --diff "$work/some.bundle" "$work/gone"
only_err "motet hostcall: $work/gone: No such file or directory$"
passed
