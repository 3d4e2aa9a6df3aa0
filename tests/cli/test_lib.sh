#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet lib: who is chosen and why, on scratch trees and small libraries made here.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
here=$(dirname "$0")
unset MOTET_RCCL_LIB MOTET_NCCL_LIB HIPFIRE_RCCL_LIB VLLM_NCCL_SO_PATH HIPFIRE_ROCM_PATH \
    ROCM_PATH HIP_PATH DTK_ROOT NCCL_ROOT NCCL_HOME VIRTUAL_ENV CONDA_PREFIX PYTHONPATH \
    LD_LIBRARY_PATH
export PATH=/usr/bin:/bin HOME=$work

expect 0 "$motet" lib --help
out_has '^usage: motet lib '
expect 64 "$motet" lib hip
err_has "'hip' is not a library of this kind, need rccl or nccl"
expect 64 "$motet" lib rccl nccl
err_has "unexpected argument 'nccl'"
expect 64 "$motet" lib --for hipfier
err_has "did you mean 'hipfire'"
expect 64 "$motet" lib nccl --for hipfire
err_has 'hipfire does not use NCCL'
expect 64 "$motet" lib --json --path
err_has '\-\-path and --json exclude each other'
expect 64 "$motet" lib --json --ours
err_has '\-\-ours and --json exclude each other'
expect 64 "$motet" lib --for torch --ours
expect 64 "$motet" lib --pid 0
expect 64 "$motet" lib -T 0

cc=$(command -v "${CC:-cc}" || command -v gcc || command -v clang) || skip "no C compiler"

# make FILE FLAGS...: a library at $work/FILE
make() {
    local file=$work/$1
    shift
    mkdir -p "$(dirname "$file")"
    "$cc" -shared -fPIC "$here/findable.c" -o "$file" "$@" || fail "no $file"
}

# json EXPRESSION: true of the last output, as j
json() {
    python3 -c '
import json, sys
j = json.load(open(sys.argv[1]))
c = j["candidates"]
assert eval(sys.argv[2]), json.dumps(j, indent=1)' "$work/out" "$1" || fail "not so: $1"
    checks=$((checks + 1))
}

good() {
    make "$@" -DVERSION=22707 -DCOMPLETE
}

# An engine's two outputs. Not found: six paths and the hint.
merged=$work/nix/store/k6dy-rocmtoolkit-merged
mkdir -p "$merged/lib" "$merged/lib64"
expect 1 env HIPFIRE_ROCM_PATH="$merged" "$motet" lib --for hipfire
out_has "^RCCL for hipfire: none\. HIPFIRE_ROCM_PATH=$merged has no librccl.so, librccl.so.1 or librccl.so.1.0"
out_has 'is RCCL installed \(apt install rccl, or /opt/rocm/lib/librccl.so.1\)\?'
out_has 'If it lives outside the ROCm root, set HIPFIRE_RCCL_LIB=/path/to/librccl.so$'
[ "$(grep -c '^absent .* configured root ' "$work/out")" -eq 6 ] || fail "not six paths"
for folder in lib lib64; do
    for name in librccl.so librccl.so.1 librccl.so.1.0; do
        out_has "^absent +- +configured root +$merged/$folder/$name\$"
    done
done
[ ! -s "$work/err" ] || fail "something on stderr"
expect 1 env HIPFIRE_ROCM_PATH="$merged" "$motet" lib --for hipfire --path
[ ! -s "$work/out" ] || fail "a path that is none"
err_has 'set HIPFIRE_RCCL_LIB=/path/to/librccl.so$'
expect 1 env HIPFIRE_ROCM_PATH=$'/\e[31mred' "$motet" lib --for hipfire --path
err_has 'HIPFIRE_ROCM_PATH=/\?\[31mred'
expect 1 env HIPFIRE_ROCM_PATH="$merged" "$motet" lib --for hipfire --json
json 'j["root"] == "'"$merged"'" and j["chosen"] is None and j["ambiguous"] == []'
json 'len(c) == 6 and all(x["tried"] and not x["exists"] and x["loads"] is False for x in c)'
json 'c[0]["error"] == "no such file" and c[0]["origin"] == "configured root"'

# Found: the override, and the store path is listed before it is named.
rccl=nix/store/c8dc-rccl-7.2.3/lib/librccl.so
good $rccl
expect 1 env MOTET_HOST_ROOT="$work" HIPFIRE_ROCM_PATH="$merged" "$motet" lib --for hipfire
out_has "^not tried +- +elsewhere +$work/$rccl\$"
out_has "^    not tried; to use it set HIPFIRE_RCCL_LIB=$work/$rccl\$"
found=(env HIPFIRE_ROCM_PATH="$merged" HIPFIRE_RCCL_LIB="$work/$rccl" "$motet" lib --for hipfire)
expect 0 "${found[@]}"
out_has "^RCCL for hipfire: $work/$rccl: HIPFIRE_RCCL_LIB names it\$"
out_has "^taken +2\.27\.7 +override +$work/$rccl\$"
out_has '^version 2\.27\.7 \(22707\)$'
expect 0 "${found[@]}" --path
[ "$(cat "$work/out")" = "$work/$rccl" ] || fail "not the path alone"
expect 0 "${found[@]}" --json
is_json "$work/out"
json 'j["chosen"] == "'"$work/$rccl"'" and len(c) == 1 and c[0]["loads"] and c[0]["error"] is None'
json 'c[0]["version"] == "2.27.7" and c[0]["version_code"] == 22707 and c[0]["missing"] == []'
json 'list(j)[2:6] == ["root", "ambiguous", "candidates", "chosen"]'

# An override belongs to its client, MOTET_RCCL_LIB is before all.
good a/librccl.so
good b/librccl.so
expect 0 env HIPFIRE_RCCL_LIB="$work/a/librccl.so" MOTET_RCCL_LIB="$work/b/librccl.so" \
    "$motet" lib --for hipfire --path
[ "$(cat "$work/out")" = "$work/b/librccl.so" ] || fail "not MOTET_RCCL_LIB's"
expect 0 env VLLM_NCCL_SO_PATH="$work/a/librccl.so" ROCM_PATH="$merged" "$motet" lib rccl --for vllm --path
expect 1 env VLLM_NCCL_SO_PATH="$work/a/librccl.so" ROCM_PATH="$merged" "$motet" lib rccl --path

# One that does not load stops with the loader's reason.
make needed/libneeded.so -Wl,-soname,libneeded.so
make needy/librccl.so -DVERSION=1 -Wl,--no-as-needed -L"$work/needed" -lneeded
expect 1 env HIPFIRE_RCCL_LIB="$work/needy/librccl.so" ROCM_PATH="$work/opt" "$motet" lib --for hipfire
out_has 'HIPFIRE_RCCL_LIB=.*needy/librccl.so: libneeded.so: cannot open shared object file: .*; it is authoritative, nothing else was tried'
printf 'no library' >"$work/text.so"
expect 1 env MOTET_RCCL_LIB="$work/text.so" "$motet" lib --json
json 'c[0]["error"] == "wrong kind of file: not an ELF file" and c[0]["exists"] and c[0]["loads"] is False'
head -c 3000 "$work/a/librccl.so" >"$work/cut.so"
expect 1 env MOTET_RCCL_LIB="$work/cut.so" "$motet" lib --json
json 'c[0]["loads"] is False and c[0]["error"]'
expect 1 env MOTET_RCCL_LIB="$work" "$motet" lib
out_has 'not readable'

# Loading may crash, exit, print, start processes or never come back.
make crash.so -DVERSION=1 -DCRASHES
expect 1 env MOTET_RCCL_LIB="$work/crash.so" "$motet" lib
out_has 'loading it ends the process: signal 6 \(Aborted\)'
make exit.so -DVERSION=1 -DEXITS
expect 1 env MOTET_RCCL_LIB="$work/exit.so" "$motet" lib
out_has 'loading it ends the process with exit status 0'
make print.so -DVERSION=2708 -DPRINTS
expect 0 env MOTET_RCCL_LIB="$work/print.so" "$motet" lib --path
[ "$(cat "$work/out")" = "$work/print.so" ] || fail "a constructor was heard"
[ ! -s "$work/err" ] || fail "a constructor was heard on stderr"
expect 0 env MOTET_RCCL_LIB="$work/print.so" "$motet" lib --json
json 'c[0]["version"] == "2.7.8"'
make hang.so -DVERSION=1 -DHANGS
start=$SECONDS
expect 1 env MOTET_RCCL_LIB="$work/hang.so" "$motet" lib -T 1
out_has 'loading it did not come back within 1 s'
[ $((SECONDS - start)) -lt 20 ] || fail "the deadline was not kept"
make fork.so -DVERSION=22707 -DFORKS
expect 0 env MOTET_RCCL_LIB="$work/fork.so" "$motet" lib
within_5s sh -c "! grep -l fork.so /proc/[0-9]*/maps 2>/dev/null" || fail "a process that a constructor started is left"
make ask.so -DVERSION=1 -DASK_CRASHES
expect 0 env MOTET_RCCL_LIB="$work/ask.so" "$motet" lib --json
json 'c[0]["loads"] and c[0]["version"] is None and "ncclGetVersion ends the process: signal 6" in c[0]["error"]'

make plain.so
expect 0 env MOTET_RCCL_LIB="$work/plain.so" "$motet" lib --json
json 'c[0]["loads"] and c[0]["version"] is None and c[0]["version_code"] is None and c[0]["error"] is None'

# By the linker: always for NCCL, for RCCL if it is asked.
good by_name/libnccl.so.2
good by_name/librccl.so
export LD_LIBRARY_PATH=$work/by_name MOTET_HOST_ROOT=$work/empty
expect 0 "$motet" lib nccl --json
json 'j["chosen"] == "'"$work"'/by_name/libnccl.so.2" == c[0]["path"] and c[0]["origin"] == "linker\x27s search"'
expect 1 "$motet" lib rccl
out_has "^not tried +- +elsewhere +$work/by_name/librccl.so\$"
expect 0 "$motet" lib rccl --by-name --path
[ "$(cat "$work/out")" = "$work/by_name/librccl.so" ] || fail "not the linker's"
unset LD_LIBRARY_PATH MOTET_HOST_ROOT

# A bad copy in a root gives the next; one that ends the process ends the search.
mkdir -p "$work/r/lib" "$work/r/lib64"
cp "$work/needy/librccl.so" "$work/r/lib/librccl.so"
good r/lib64/librccl.so.1
expect 0 env ROCM_PATH="$work/r" "$motet" lib --json
json 'j["chosen"] == "'"$work"'/r/lib64/librccl.so.1" and c[0]["tried"] and "libneeded.so" in c[0]["error"]'
cp "$work/crash.so" "$work/r/lib/librccl.so"
expect 1 env ROCM_PATH="$work/r" "$motet" lib --json
json 'j["chosen"] is None and c[0]["loads"] is False and not c[1]["tried"] and c[1]["loads"] is None'

# Nothing says which kind: the copy that cannot be used is loaded once.
make once/opt/rocm/lib/librccl.so -DCRASHES -DLOG="\"$work/loads\""
expect 1 env MOTET_HOST_ROOT="$work/once" "$motet" lib
out_has '^RCCL: none\. .*loading it ends the process'
[ "$(wc -l <"$work/loads")" -eq 1 ] || fail "it was loaded more than once"

# Several installs, and a selector.
good host/opt/rocm-7.9.0/lib/librccl.so
good host/opt/rocm-7.14.0/lib/librccl.so
export MOTET_HOST_ROOT=$work/host
expect 2 "$motet" lib rccl --json
json 'j["ambiguous"] == ["'"$work"'/host/opt/rocm-7.14.0", "'"$work"'/host/opt/rocm-7.9.0"]'
json 'c == [] and j["chosen"] is None and j["root"] is None'
expect 2 "$motet" lib --for hipfire
out_has 'nothing selects one: set HIPFIRE_ROCM_PATH='
expect 2 "$motet" lib rccl --path
ln -s rocm-7.9.0 "$work/host/opt/rocm"
expect 0 "$motet" lib rccl --path
[ "$(cat "$work/out")" = "$work/host/opt/rocm/lib/librccl.so" ] || fail "not the selector's"
expect 0 "$motet" lib rccl
out_has "^not tried +- +elsewhere +$work/host/opt/rocm-7.14.0/lib/librccl.so\$"
out_has "^taken +2.27.7 +install +$work/host/opt/rocm/lib/librccl.so\$"
out_has "^    is $work/host/opt/rocm-7.9.0/lib/librccl.so\$"

# A Python environment, by its folder and by its interpreter.
wheel=venv/lib/python3.12/site-packages/nvidia/nccl/lib/libnccl.so.2
good $wheel
expect 0 "$motet" lib nccl --python "$work/venv" --path
[ "$(cat "$work/out")" = "$work/$wheel" ] || fail "not the wheel's"
mkdir "$work/venv/bin"
printf '#!/bin/sh\n' >"$work/venv/bin/python3.12"
chmod +x "$work/venv/bin/python3.12"
for python in "$work/venv/bin/python3.12" python3.12; do
    expect 0 env PATH="$work/venv/bin:$PATH" "$motet" lib nccl --python "$python" --path
    [ "$(cat "$work/out")" = "$work/$wheel" ] || fail "not the wheel's"
done
expect 1 "$motet" lib nccl --python "$work/none" --path
err_has 'no wheel in it has the library'
expect 1 "$motet" lib --for vllm --python "$work/venv" --json
json 'j["library"] == "nccl" and j["client"] == "vllm" and c[0]["origin"] == "Python environment"'
unset MOTET_HOST_ROOT

# What a client takes and does not find.
make lame.so -DVERSION=22707
expect 1 env MOTET_RCCL_LIB="$work/lame.so" "$motet" lib --for hipfire
out_has '^it lacks 8 names that hipfire takes$'
expect 1 env MOTET_RCCL_LIB="$work/lame.so" "$motet" lib --for hipfire --json
json 'j["chosen"] and c[0]["missing"] == ["ncclCommInitAll", "ncclCommDestroy", "ncclAllReduce", "ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd", "ncclGetErrorString"]'
expect 0 env MOTET_RCCL_LIB="$work/lame.so" "$motet" lib --for hipfire --path
expect 1 env MOTET_RCCL_LIB="$work/$rccl" "$motet" lib --for torch
out_has ' and [0-9]+ more$'
# A library that it needs may define them, and a file without sections says nothing.
good dep/libdep.so -Wl,-soname,libdep.so
make wrap.so -Wl,--no-as-needed -Wl,-rpath,"$work/dep" -L"$work/dep" -l:libdep.so
expect 0 env MOTET_RCCL_LIB="$work/wrap.so" "$motet" lib --for hipfire --json
json 'c[0]["missing"] == [] and c[0]["version"] == "2.27.7" and "libdep.so" in c[0]["needs"]'
for lacks in 0 8; do
    cp "$work/$([ $lacks -eq 0 ] && echo a/librccl || echo lame).so" "$work/bare.so"
    # e_shoff, then e_shnum and e_shstrndx
    printf '\0\0\0\0\0\0\0\0' | dd of="$work/bare.so" bs=1 seek=40 conv=notrunc status=none
    printf '\0\0\0\0' | dd of="$work/bare.so" bs=1 seek=60 conv=notrunc status=none
    expect $((lacks > 0)) env MOTET_RCCL_LIB="$work/bare.so" "$motet" lib --for hipfire --json
    json 'len(c[0]["missing"]) == '$lacks' and "no table of sections" in c[0]["error"]'
done
# Ours lack nothing.
for name in librccl.so.1 libnccl.so.2; do
    ours=$build/src/exports/$name
    [ -e "$ours" ] || continue
    kind=${name%.so*}
    for client in torch vllm cupy nccl-tests hipfire; do
        [ "$client $name" != "hipfire libnccl.so.2" ] || continue
        variable=MOTET_$(echo "${kind#lib}" | tr '[:lower:]' '[:upper:]')_LIB
        expect 0 env "$variable=$ours" "$motet" lib "${kind#lib}" --for "$client" --json
        json 'c[0]["missing"] == [] and c[0]["version"] == "2.27.7" and j["motet"]'
    done
done

# What poisons a process.
make smi/librocm_smi64.so.1 -Wl,-soname,librocm_smi64.so.1
make smi/librccl.so -DVERSION=22707 -Wl,--no-as-needed -Wl,-rpath,"$work/smi" -L"$work/smi" -l:librocm_smi64.so.1
expect 0 env MOTET_RCCL_LIB="$work/smi/librccl.so" "$motet" lib
out_has '^    needs librocm_smi64.so.1: where it starts before amdsmi, '
make hip6/libamdhip64.so.6 -Wl,-soname,libamdhip64.so.6
make hip7/libamdhip64.so.7 -Wl,-soname,libamdhip64.so.7
make hip/librccl.so -DVERSION=22707 -Wl,--no-as-needed -Wl,-rpath,"$work/hip6:$work/hip7" \
    -L"$work/hip6" -L"$work/hip7" -l:libamdhip64.so.6 -l:libamdhip64.so.7
expect 0 env MOTET_RCCL_LIB="$work/hip/librccl.so" "$motet" lib --json
json 'c[0]["poison"][:1] == ["brings two HIP runtimes, '"$work"'/hip6/libamdhip64.so.6 and '"$work"'/hip7/libamdhip64.so.7: a process can use one"]'
json 'c[0]["needs"][:2] == ["libamdhip64.so.6", "libamdhip64.so.7"]'
# RCCL of one install, the engine's HIP runtime of another; a link to the same is none.
make one/librccl.so -DVERSION=22707 -Wl,--no-as-needed -Wl,-rpath,"$work/hip6" -L"$work/hip6" -l:libamdhip64.so.6
mkdir -p "$work/sdk/lib"
cp "$work/hip6/libamdhip64.so.6" "$work/sdk/lib/libamdhip64.so.6"
expect 0 env MOTET_RCCL_LIB="$work/one/librccl.so" ROCM_PATH="$work/sdk" "$motet" lib
out_has "^    brings the HIP runtime $work/hip6/libamdhip64.so.6, and a program with the same root takes $work/sdk/lib/libamdhip64.so.6\$"
ln -sf "$work/hip6/libamdhip64.so.6" "$work/sdk/lib/libamdhip64.so.6"
expect 0 env MOTET_RCCL_LIB="$work/one/librccl.so" ROCM_PATH="$work/sdk" "$motet" lib --json
json 'c[0]["poison"] == []'

# What a process has mapped.
"$build/tests/cli/mapper" 60 "$work/a/librccl.so" "$work/hip7/libamdhip64.so.7" >/dev/null &
mapper=$!
trap 'kill $mapper; rm -rf "$work"' EXIT
within_5s grep -q hip7 "/proc/$mapper/maps" || fail "the process does not map them"
expect 0 env MOTET_RCCL_LIB="$work/one/librccl.so" "$motet" lib --pid $mapper
out_has "^process $mapper has mapped:\$"
out_has "^  $work/a/librccl.so\$"
out_has "^    brings the HIP runtime $work/hip6/libamdhip64.so.6, and the process has $work/hip7/libamdhip64.so.7 mapped\$"
expect 0 env MOTET_RCCL_LIB="$work/one/librccl.so" "$motet" lib --pid $mapper --json
json 'sorted(j["mapped"]) == ["'"$work/a/librccl.so"'", "'"$work/hip7/libamdhip64.so.7"'"]'
kill $mapper
wait $mapper || true
trap 'rm -rf "$work"' EXIT
expect 2 env MOTET_RCCL_LIB="$work/one/librccl.so" "$motet" lib --pid $mapper
out_has "^process $mapper: there is none\$"

# Ours, beside the command.
mkdir -p "$work/bin" "$work/lib"
cp "$motet" "$work/bin/motet"
expect 1 "$work/bin/motet" lib nccl --ours
err_has 'there is no libnccl.so.2 beside this command'
for name in libnccl.so.2 librccl.so.1; do
    : >"$work/lib/$name"
done
expect 0 "$work/bin/motet" lib nccl --path --ours
[ "$(cat "$work/out")" = "$work/lib/libnccl.so.2" ] || fail "not ours"
expect 0 "$work/bin/motet" lib rccl --ours
[ "$(cat "$work/out")" = "$work/lib/librccl.so.1" ] || fail "not ours"
passed
