#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# test_chroot.sh SOURCE BUILD: the archive holds what it should, and its command moves
# checked data between ranks in a root that has nothing but the archive, libc, libm and
# the loader: no shell, no /usr, no /dev.
set -euo pipefail

source=$1
build=$2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

"$source/scripts/dist-bin.sh" "$build" "$root/dist"
mkdir "$root/root"
tar -C "$root/root" -xf "$root"/dist/motet-*.tar.xz
home=$(cd "$root/root" && echo motet-*)

missing=0
for pattern in 'bin/motet' 'lib*/libnccl.so.2' 'lib*/librccl.so.1' 'lib*/libmotet.so' \
    'lib*/pkgconfig/nccl.pc' 'lib*/pkgconfig/motet.pc' 'lib*/cmake/motet/motet-config.cmake' \
    'lib*/cmake/rccl/rccl-config.cmake' 'include/nccl.h' 'include/rccl/rccl.h' 'include/motet.h' \
    'share/man/man1/motet.1*' 'share/doc/motet/docs/api.md' \
    share/doc/motet/LICENSE share/doc/motet/README.md; do
    # lib may be lib64 or lib/x86_64-linux-gnu
    if ! compgen -G "$root/root/$home/$pattern" >/dev/null &&
        ! compgen -G "$root/root/$home/${pattern/lib\*/lib/*}" >/dev/null; then
        echo "the archive lacks $pattern"
        missing=1
    fi
done
[ $missing = 0 ] || exit 1

[ "$(id -u)" = 0 ] || {
    echo "SKIPPED: chroot needs root"
    exit 77
}
# What the command needs, under the names by which it asks for it.
ldd "$root/root/$home/bin/motet" | sed -n 's/.*=> \(\/[^ ]*\).*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\).*/\1/p' |
    while read -r library; do
        case $(basename "$library") in
        libc.so.6 | libm.so.6 | ld-linux*) ;;
        libmotet.so* | libnccl.so* | librccl.so*) continue ;; # out of the archive itself
        *)
            echo "the command needs $library"
            exit 1
            ;;
        esac
        install -D "$(readlink -f "$library")" "$root/root$library"
    done

chroot "$root/root" "/$home/bin/motet" version
chroot "$root/root" "/$home/bin/motet" smoke -n 2
