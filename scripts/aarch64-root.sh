#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Fetches the arm64 build of cmocka, which the unit tests link, into build/aarch64-root.
# apt works on lists and a cache of its own there, so that neither the machine's
# architectures nor its packages change, and root is not needed. Exits with 1 where
# there is no apt, or no arm64 packages.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

readonly root=build/aarch64-root
readonly work=$PWD/build/aarch64-apt

[ ! -d "$root" ] || exit 0
have apt-get && have dpkg-deb || exit 1

arm64_apt() {
    apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User= \
        -o Dir::State::lists="$work/lists" -o Dir::State::status=/dev/null \
        -o Dir::Cache="$work" "$@"
}

say "fetching the arm64 build of cmocka"
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/debs"
arm64_apt update
(
    cd "$work/debs"
    arm64_apt download libcmocka0 libcmocka-dev
)
for package in "$work"/debs/*.deb; do
    dpkg-deb -x "$package" "$work/root"
done
mv "$work/root" "$root"
rm -rf "$work"
