#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/dist-bin.sh [BUILD [FOLDER]]: packs what an installation holds into
# FOLDER/motet-VERSION-linux-MACHINE.tar.xz (default: the release preset, dist/). The
# archive may be unpacked anywhere: nothing in it knows a prefix. Two runs on the same
# commit make the same bytes.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

build=${1-build/release}
folder=${2-dist}
have xz || die "xz is not installed"
[ $# -gt 0 ] || build_preset release

cached() { # VARIABLE
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
version=$(cached CMAKE_PROJECT_VERSION)
machine=$(uname -m)
name=motet-$version-linux-$machine
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT

cmake --install "$build" --prefix "$staging/$name" >/dev/null
find "$staging/$name" -type f \( -name '*.so*' -o -path '*/bin/*' \) -exec strip --strip-unneeded {} +
find "$staging/$name" -type f -name '*.a' -exec strip --strip-debug {} +
if grep -rlI "$staging" "$staging/$name"; then
    die "the files above know the folder that they were installed into"
fi
mkdir -p "$folder"
tar -C "$staging" --sort=name --owner=0 --group=0 --numeric-owner \
    --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" \
    -cf - "$name" | xz -9 >"$folder/$name.tar.xz.part"
mv "$folder/$name.tar.xz.part" "$folder/$name.tar.xz"
say "$folder/$name.tar.xz: $(stat -c %s "$folder/$name.tar.xz") bytes"
