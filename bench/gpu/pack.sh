#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Collects what runs on another machine, where there is nothing to build with:
#
#   bench/gpu/pack.sh BUILD FOLDER
#
# FOLDER gets bin/ (the command, the GPU tests) and lib/ (the libraries, onegpu.so),
# without debug information. The tests there: LD_LIBRARY_PATH=FOLDER/lib FOLDER/bin/test_gpu
set -euo pipefail
[ $# -eq 2 ] || {
    echo "usage: pack.sh BUILD FOLDER" >&2
    exit 64
}
readonly build=$1 folder=$2

mkdir -p "$folder/bin" "$folder/lib"
for file in tools/motet/motet tests/gpu/test_gpu tests/gpu/test_gpu_matrix tests/gpu/litmus; do
    install -m 755 "$build/$file" "$folder/bin/"
done
for file in libmotet.so.0 libnccl.so.2; do
    install -m 755 "$(realpath "$build/src/exports/$file")" "$folder/lib/$file"
done
install -m 755 "$build/bench/gpu/onegpu.so" "$folder/lib/"
strip --strip-debug "$folder"/bin/* "$folder"/lib/*
du -sh "$folder"
