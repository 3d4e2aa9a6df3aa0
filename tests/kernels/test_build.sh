#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# test_build.sh MOTET BUILD_DIR CLANG: motet kernels build, from what is installed.
# One target is built whole; where it may go wrong, one source is enough.
# shellcheck source=tests/cli/lib.sh
. "$(dirname "$0")/../cli/lib.sh"
clang=$(command -v "$3") || skip "$3 is not installed"
# The compiler's own, or the system's: without, there is no gate.
objdump=$("$clang" --print-prog-name=llvm-objdump)
command -v "$objdump" llvm-objdump-19 llvm-objdump >"$work/objdump" ||
    skip "llvm-objdump is not installed (package llvm-19)"
cmake --install "$build" --component kernels --prefix "$work/installed" >/dev/null
sources=$(dirname "$(find "$work/installed" -name gate.py)")
export XDG_DATA_HOME=$work/data
unset HSA_OVERRIDE_GFX_VERSION
build=("$motet" kernels build --sources "$sources" --cc "$clang")

# --- what cannot be done is said, before anything is compiled
expect 64 "${build[@]}" --target ../gfx1100
err_has "need native or gfx and digits"
expect 64 "${build[@]}" --target gfx
expect 64 "${build[@]}" --target gfx1100 more
expect 2 "${build[@]}" --sysfs "$work/none"
err_has "no AMD GPU in $work/none/class/kfd/kfd/topology/nodes: .*--target gfx928"
expect 2 "$motet" kernels build --target gfx1100 --sources "$work/none"
err_has "the sources come with an installed motet"
expect 2 "$motet" kernels build --target gfx1100 --sources "$sources" --cc "$work/none"
err_has "no compiler $work/none: install clang-19"
expect 2 env PATH="$work" "${build[@]}" --target gfx1100
err_has "python3 is not installed"
[ ! -e "$XDG_DATA_HOME" ] || fail "a folder was made for nothing"

# --- a compiler that does not know the target: its own words, and what to do
expect 2 "${build[@]}" --target gfx9999 -o "$work/unknown"
err_has "gfx9999"
err_has "takes clang 17 or newer that knows the target"
[ -z "$(ls -A "$work/unknown")" ] || fail "something was left behind"

# --- the gate stands in the way
cp -r "$sources" "$work/bad"
bad=$work/bad/kernels/gpu
sed -i 's/^sources=.*/sources=control/' "$bad/build.sh"
cat >>"$bad/control.c" <<'END'
__attribute__((amdgpu_kernel)) void planted(int *p);
__attribute__((amdgpu_kernel)) void planted(int *p)
{
    __atomic_fetch_add(p, 1, __ATOMIC_RELAXED);
}
END
expect 1 "$motet" kernels build --target gfx1100 --sources "$work/bad" --cc "$clang" -o "$work/planted"
out_has "planted: read-modify-write: global_atomic"
err_has "did not pass the check, and is not kept"
[ -z "$(ls -A "$work/planted")" ] || fail "a planted object was kept"

# --- without llvm-objdump nothing is kept either
mkdir "$work/bin"
for tool in sh dirname sed cat cksum tr mktemp rm cp; do
    ln -s "$(command -v $tool)" "$work/bin/$tool"
done
ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$work/bin/python3"
printf '#!/bin/sh\n[ "$1" != --print-prog-name=llvm-objdump ] || exec echo none\nexec "%s" "$@"\n' \
    "$clang" >"$work/cc"
chmod +x "$work/cc"
sed -i '/^__attribute__((amdgpu_kernel)) void planted(int \*p);/,$d' "$bad/control.c"
sed -n 's/^KERNEL(\(\w*\),.*/KERNEL_ROW(\1, int)/p' "$bad/control.c" >"$bad/kernels.def"
expect 2 env PATH="$work/bin" "$motet" kernels build --target gfx1100 --sources "$work/bad" \
    --cc "$work/cc" -o "$work/unchecked"
err_has "cannot be checked without llvm-objdump: install llvm-19"
[ -z "$(ls -A "$work/unchecked")" ] || fail "an object that was not checked was kept"

# --- this machine's cards: two of one kind, and a processor
nodes=$work/sys/class/kfd/kfd/topology/nodes
mkdir -p "$nodes/0" "$nodes/1" "$nodes/2"
printf 'cpu_cores_count 8\ngfx_target_version 0\n' >"$nodes/0/properties"
printf 'simd_count 192\ngfx_target_version 90010\n' >"$nodes/1/properties"
printf 'simd_count 192\ngfx_target_version 90010\n' >"$nodes/2/properties"
expect 0 "${build[@]}" --sysfs "$work/sys"
object=$XDG_DATA_HOME/motet/kernels/motet-gfx90a.co
out_has "^gfx90a: $object$"
[ "$(ls -A "$XDG_DATA_HOME/motet/kernels")" = motet-gfx90a.co ] || fail "more than one object"
grep -q "motet kernels $(sh "$sources/kernels/gpu/build.sh" stamp)" "$object" ||
    fail "the object has not its sources' stamp"

# --- a vendor's compiler for a target of its own: gfx906 under another name
cat >"$work/vendor" <<END
#!/bin/sh
last= output=
for word; do
    shift
    [ "\$word" != -mcpu=gfx928 ] || word=-mcpu=gfx906
    [ "\$last" != -o ] || output=\$word
    last=\$word
    set -- "\$@" "\$word"
done
"$clang" "\$@" || exit
case \$output in *.co) LC_ALL=C sed -i s/gfx906/gfx928/g "\$output" ;; esac
END
chmod +x "$work/vendor"
expect 0 "$motet" kernels build -t gfx928 --sources "$work/bad" --cc "$work/vendor" -o "$work/there"
out_has "^gfx928: $work/there/motet-gfx928.co$"
out_has "programs find it with MOTET_KERNEL_PATH=$work/there$"

# --- and what the runtime is told that they are
expect 2 env HSA_OVERRIDE_GFX_VERSION=99.9.15 "${build[@]}" --sysfs "$work/sys" -o "$work/told"
err_has "gfx999f"
passed
