#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet, Open MPI, MPICH and Gloo on the same operations and sizes, interleaved, at 2, 4
# and 8 ranks of this machine. A peer that is not installed is left out, and said so.
#
#   bench/peers/run.sh [--quick] [--rounds N] [--cap MS] [--ranks "2 4 8"] [--build DIR] [--out DIR]
#
# Writes peers.csv (every line of every program, with its round), peers.md and peers.svg
# to bench/results/ (or DIR). Ranks of Open MPI run under several settings; the report
# takes the best of them for each operation and size.
set -euo pipefail
export LC_ALL=C

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
readonly here root
rounds=5 ranks="2 4 8" cap=200 build=$root/build/release out=$root/bench/results
max=$((64 << 20))

usage() {
    sed -n '6p' "$0" | cut -c3- >&2
    exit 64
}

while [ $# -gt 0 ]; do
    case $1 in
    --quick) rounds=1 cap=60 max=$((16 << 20)) ;;
    --rounds) rounds=${2:?} && shift ;;
    --cap) cap=${2:?} && shift ;;
    --ranks) ranks=${2:?} && shift ;;
    --build) build=$(cd "${2:?}" && pwd) && shift ;;
    --out) out=${2:?} && shift ;;
    *) usage ;;
    esac
    shift
done

mkdir -p "$out" "$build/peers"
out=$(cd "$out" && pwd)
readonly bin=$build/peers raw=$out/peers.csv
readonly limit=900 # seconds that one program may take
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

have() {
    command -v "$1" >/dev/null 2>&1
}

say() {
    printf '== %s\n' "$*" >&2
}

# ---- the programs

peers=(motet)

compile() {
    cc -O2 -I"$here" -c -o "$bin/peer.o" "$here/peer.c"
    cc -O2 -DMOTET_NO_CUDA_HEADERS -I"$root/include" -o "$bin/motet_peer" \
        "$here/motet_peer.c" "$bin/peer.o" \
        -L"$build/src/exports" -lmotet -Wl,-rpath,"$build/src/exports"
    for mpi in openmpi mpich; do
        if have "mpicc.$mpi" && have "mpirun.$mpi"; then
            "mpicc.$mpi" -O2 -I"$here" -o "$bin/mpi_$mpi" "$here/mpi_peer.c" "$here/peer.c"
            peers+=("$mpi")
        else
            say "left out: $mpi is not installed"
        fi
    done
    if have c++ && c++ -O2 -std=c++17 -I"$here" -o "$bin/gloo_peer" "$here/gloo_peer.cc" \
        "$bin/peer.o" -lgloo -lpthread 2>"$scratch/gloo.log"; then
        peers+=(gloo)
    else
        say "left out: Gloo is not installed ($(head -n 1 "$scratch/gloo.log"))"
    fi
}

# ---- one run each; the lines of rank 0 go to stdout

# More ranks than cores: MPI's ranks must yield, and must not be bound.
oversubscribed() {
    [ "$1" -gt "$(nproc)" ]
}

# With ordinary buffers, and with buffers that are registered as windows.
run_motet() {
    timeout "$limit" "$build/tools/motet/motet" run -n "$1" --no-prefix -- \
        "$bin/motet_peer" --cap "$cap" --max "$max" "motet,$2"
}

openmpi_settings=(default vader vader_copy sm)

openmpi_flags() {
    case $1 in
    default) ;;
    vader) echo --mca pml ob1 --mca btl self,vader ;;
    vader_copy)
        echo --mca pml ob1 --mca btl self,vader --mca btl_vader_single_copy_mechanism none
        ;;
    sm) echo --mca pml ob1 --mca btl self,vader --mca coll_sm_priority 95 ;;
    esac
}

run_openmpi() {
    local n=$1 setting=$2 flags=()

    [ "$(id -u)" != 0 ] || flags+=(--allow-run-as-root)
    if oversubscribed "$n"; then
        flags+=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
    else
        flags+=(--bind-to core)
    fi
    # shellcheck disable=SC2046 # the flags are words
    timeout "$limit" mpirun.openmpi "${flags[@]}" $(openmpi_flags "$setting") -n "$n" \
        "$bin/mpi_openmpi" --cap "$cap" --max "$max" "openmpi,$setting"
}

run_mpich() {
    local bind=()

    oversubscribed "$1" || bind=(-bind-to core)
    timeout "$limit" mpirun.mpich "${bind[@]}" -n "$1" \
        "$bin/mpi_mpich" --cap "$cap" --max "$max" mpich,default
}

run_gloo() {
    local n=$1 algorithm=$2 folder rank pids=() status=0

    folder=$(mktemp -d "$scratch/gloo.XXXXXX")
    for ((rank = 0; rank < n; rank++)); do
        RANK=$rank SIZE=$n FOLDER=$folder ALGORITHM=$algorithm \
            timeout "$limit" "$bin/gloo_peer" --cap "$cap" --max "$max" "gloo,$algorithm" &
        pids+=($!)
    done
    for rank in "${pids[@]}"; do
        wait "$rank" || status=1
    done
    return $status
}

# A program that fails or takes too long is reported, and the others go on.
measure() {
    local round=$1 who=$2 n=$3 setting=$4

    say "round $round, $n ranks, $who $setting"
    if ! "run_$who" "$n" "$setting" 2>"$scratch/stderr" >"$scratch/lines"; then
        say "failed: $who $setting at $n ranks: $(tail -n 1 "$scratch/stderr")"
    fi
    sed -n "s/^[a-z].*,[0-9.]*\$/$round,&/p" "$scratch/lines" >>"$raw"
}

compile
printf 'round,who,setting,ranks,op,bytes,operations,median_us,p10_us,p90_us\n' >"$raw"
for ((round = 1; round <= rounds; round++)); do
    for n in $ranks; do
        for who in "${peers[@]}"; do
            case $who in
            openmpi) settings=("${openmpi_settings[@]}") ;;
            gloo) settings=(ring bcube) ;;
            motet) settings=(ordinary windows) ;;
            *) settings=(default) ;;
            esac
            for setting in "${settings[@]}"; do
                measure "$round" "$who" "$n" "$setting"
            done
        done
    done
done
python3 "$here/report.py" "$raw" "$out/peers.md" "$out/peers.svg"
say "wrote $raw, peers.md and peers.svg"
