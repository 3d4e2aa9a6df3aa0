#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# scripts/deps.sh demo|check|torch|bench
#
# Finds what is missing for a target. As root on Debian and Ubuntu it installs that
# and asks nothing; what is already there is not touched, and then no network is
# either. Elsewhere it names the packages and goes on: the later steps do without
# what they can do without, and say so. Exits with 0 unless the usage is wrong.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

# sets | how to see that it is there | apt | dnf | pacman | nix
# A probe is `cmd NAME`, `pc MODULE`, `file GLOB`, `archive NAME` (for the linker),
# `python MODULE`, `pyheader NAME` or `cmake`.
readonly table='
demo  check torch bench | cmd cc                        | gcc libc6-dev                   | gcc glibc-devel         | gcc                    | gcc
demo  check torch bench | cmake                         | cmake                           | cmake                   | cmake                  | cmake
demo  check torch bench | cmd ninja                     | ninja-build                     | ninja-build             | ninja                  | ninja
demo  check torch bench | cmd make                      | make                            | make                    | make                   | gnumake
demo  check torch bench | cmd clang-19                  | clang-19                        | clang                   | clang                  | clang_19
demo  check torch bench | cmd ld.lld-19                 | lld-19                          | lld                     | lld                    | lld_19
demo  check torch bench | cmd llvm-objdump-19           | llvm-19                         | llvm                    | llvm                   | llvm_19
demo  check torch bench | archive libzstd.a             | libzstd-dev                     | libzstd-static          | -                      | zstd.dev
demo  check torch       | file /usr/include/libxml2/libxml/tree.h | libxml2-dev                     | libxml2-devel           | libxml2                | libxml2.dev
demo  check torch       | file /usr/include/gelf.h      | libelf-dev                      | elfutils-libelf-devel   | libelf                 | elfutils.dev
demo  check torch       | file /usr/include/msgpack.h   | libmsgpack-dev                  | msgpack-devel           | msgpack-c              | msgpack-c
check                   | file /usr/lib/*/libamdhip64.so.5 | libamdhip64-5                | rocm-hip                | hip-runtime-amd        | rocmPackages.clr
check                   | file /usr/include/hip/hip_runtime_api.h | libamdhip64-dev       | rocm-hip-devel          | hip-runtime-amd        | rocmPackages.clr
check                   | file /usr/lib/*/librocrand.so.1 | librocrand1   | rocrand                 | rocrand                | rocmPackages.rocrand
check                   | cmd git                       | git                             | git                     | git                    | git
check torch bench       | cmd c++                       | g++                             | gcc-c++                 | gcc                    | gcc
check torch bench       | cmd python3                   | python3                         | python3                 | python                 | python3
check torch             | python ensurepip              | python3-venv                    | python3                 | python                 | python3
torch                   | pyheader Python.h             | python3-dev                     | python3-devel           | python                 | python3
check bench             | cmd pkg-config                | pkg-config                      | pkgconf-pkg-config      | pkgconf                | pkg-config
check                   | pc cmocka                     | libcmocka-dev                   | libcmocka-devel         | cmocka                 | cmocka
check                   | file /usr/lib/llvm-19/lib/clang/19*/lib/*/libclang_rt.fuzzer* | libclang-rt-19-dev | compiler-rt | compiler-rt | compiler-rt
check                   | cmd clang-format-19           | clang-format-19                 | clang-tools-extra       | clang                  | clang-tools
check                   | cmd shellcheck                | shellcheck                      | ShellCheck              | shellcheck             | shellcheck
check                   | cmd mandoc                    | mandoc                          | mandoc                  | mandoc                 | mandoc
check                   | cmd ip                        | iproute2                        | iproute                 | iproute2               | iproute2
check                   | cmd xz                        | xz-utils                        | xz                      | xz                     | xz
check                   | cmd aarch64-linux-gnu-gcc     | gcc-aarch64-linux-gnu           | gcc-aarch64-linux-gnu   | aarch64-linux-gnu-gcc  | pkgsCross.aarch64-multiplatform.stdenv.cc
check                   | file /usr/aarch64-linux-gnu/include/stdio.h | libc6-dev-arm64-cross | sysroot-aarch64-fc-glibc | aarch64-linux-gnu-glibc | -
check                   | cmd qemu-aarch64              | qemu-user                       | qemu-user               | qemu-user              | qemu
bench                   | cmd mpicc.openmpi             | openmpi-bin libopenmpi-dev      | openmpi-devel           | openmpi                | openmpi
bench                   | cmd mpicc.mpich               | mpich libmpich-dev              | mpich-devel             | mpich                  | mpich
bench                   | file /usr/include/gloo/context.h | libgloo-dev                  | gloo-devel              | -                      | gloo
'

present() { # PROBE
    local kind=${1%% *} what=${1#* }

    case $kind in
    cmd) have "$what" ;;
    pc) have pkg-config && pkg-config --exists "$what" ;;
    file) compgen -G "$what" >/dev/null ;;
    python) have python3 && python3 -c "import $what" 2>/dev/null ;;
    pyheader) have python3 && [ -e "$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["include"])')/$what" ] ;;
    archive) have cc && [ "$(cc -print-file-name="$what")" != "$what" ] ;;
    cmake) cmake_fits ;;
    *) die "no such probe: $1" ;;
    esac
}

trim() {
    local text=$1

    text=${text#"${text%%[! ]*}"}
    printf '%s' "${text%"${text##*[! ]}"}"
}

# missing COLUMN: packages of the rows of $target whose probe fails, one line.
missing() {
    local sets probe apt dnf pacman nix names=()

    while IFS='|' read -r sets probe apt dnf pacman nix; do
        [[ " $sets " == *" $target "* ]] || continue
        present "$(trim "$probe")" && continue
        local -A by=([apt]=$apt [dnf]=$dnf [pacman]=$pacman [nix]=$nix)
        names+=("$(trim "${by[$1]}")")
    done <<<"$table"
    printf '%s\n' "${names[*]}" | sed 's/ -\( \|$\)/ /g; s/^- //; s/ *$//'
}

name_packages() { # REASON
    say "$1; the packages that $target would use:"
    printf '     apt-get install %s\n' "$(missing apt)"
    printf '     dnf install %s\n' "$(missing dnf)"
    printf '     pacman -S %s\n' "$(missing pacman)"
    printf '     nix-shell -p %s\n' "$(missing nix)"
    say "going on with what is there"
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

# apt-get update, at most once a day: a package that this release of the
# distribution lacks must not cost a download in every run.
readonly stamp=build/.apt-updated
update_lists() {
    mkdir -p build
    if [ -z "$(find "$stamp" -mmin -1440 2>/dev/null)" ]; then
        apt -qq update || return 1
        touch "$stamp"
    fi
}

known() { # PACKAGE
    local policy

    policy=$(apt-cache policy "$1" 2>/dev/null)
    [[ $policy == *$'\n  Candidate: '[!\(]* ]]
}

# Install what apt knows of the missing packages; fails if that failed.
install_missing() {
    local package want=() strange=()

    for package in $(missing apt); do
        known "$package" || update_lists || true
        if known "$package"; then
            want+=("$package")
        else
            strange+=("$package")
        fi
    done
    if [ ${#strange[@]} -gt 0 ]; then
        say "not in this distribution, left out: ${strange[*]}"
    fi
    if [ ${#want[@]} -gt 0 ]; then
        say "installing: ${want[*]}"
        apt -qq -y --no-install-recommends install "${want[@]}" >/dev/null || {
            rm -f "$stamp" # the lists may be older than the mirror
            update_lists
            apt -qq -y --no-install-recommends install "${want[@]}" >/dev/null
        }
    fi
}

readonly target=${1-}
case $target in
demo | check | torch | bench) ;;
*)
    printf 'usage: scripts/deps.sh demo|check|torch|bench\n' >&2
    exit 64
    ;;
esac

if [ -z "$(missing apt)" ]; then
    say "all that $target needs is here"
elif ! have apt-get; then
    name_packages "this is not Debian or Ubuntu"
elif [ "$(id -u)" != 0 ]; then
    name_packages "installing needs root"
elif ! install_missing; then
    name_packages "apt-get could not install everything"
fi
