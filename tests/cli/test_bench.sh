#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet bench: nccl-tests' options and table, other formats, and wrong values.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
export FALSIFIER_LIB=$build/src/exports/libnccl.so.2
falsifier=$build/tests/cli/libfalsifier.so
quick="-n 2 -w 1"
unset NCCL_TESTS_MIN_BW
export MOTET_DEVICE=cpu # also where there are GPUs; test_gpu.sh has those

# rows N [FIELDS]: that many rows without '#', each of so many fields, numbers where
# nccl-tests' parsers expect them.
rows() {
    grep -v '^#' "$work/out" >"$work/rows" || true
    [ "$(wc -l <"$work/rows")" -eq "$1" ] || fail "$(wc -l <"$work/rows") rows, wanted $1"
    awk -v fields="${2:-13}" '
        NF != fields { print "fields: " NF; exit 1 }
        $1 !~ /^[0-9]+$/ || $2 !~ /^[0-9]+$/ || $5 !~ /^-?[0-9]+$/ { exit 1 }
        $6 !~ /^[0-9.e+]+$/ || $8 !~ /^[0-9.e+-]+$/ { exit 1 }' "$work/rows" || fail "a row cannot be parsed"
    checks=$((checks + 1))
}

# shellcheck disable=SC2086
{
    expect 0 "$motet" bench -b 8 -e 1K -f 2 $quick
    rows 8
    out_has '^# nccl-tests version motet-[0-9.]+ nccl-headers=22707 nccl-library=22707$'
    out_has '^# Collective test starting: all_reduce_perf$'
    out_has '^# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2\(factor\) warmup iters: 1 iters: 2 agg iters: 1 validation: 1 graph: 0 unalign: 0$'
    out_has '^#  Rank  1 Group  0 Pid +[0-9]+ on +[^ ]+ device +1 \[0000:00:00\] '
    out_has '^#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong '
    out_has '^# Out of bounds values : 0 OK$'
    out_has '^# Avg bus bandwidth    : [0-9.e-]+ $'
    out_has '^# Collective test concluded: all_reduce_perf$'
    out_has '^# library /.* \(built in\)$'
    awk '$9 != 0 || $13 != 0' "$work/rows" | grep -q . && fail "values are wrong"

    # every collective, by itself and all at once; parts are of 16 bytes
    expect 0 "$motet" bench all -b 64 -e 4K -f 8 $quick
    rows 33
    [ "$(grep -c '^# Collective test concluded' "$work/out")" -eq 11 ] || fail "not 11 collectives"
    [ "$(awk '$13 == "N/A"' "$work/rows" | wc -l)" -eq 9 ] || fail "alltoall, alltoallv and sendrecv are not checked in place"
    for name in AllReduce all_to_all alltoallv_perf sendrecv; do
        expect 0 "$motet" bench $name -b 4K -e 4K $quick
        rows 1
    done
    expect 64 "$motet" bench allreduze
    err_has "did you mean 'all_reduce'"

    # types, operators, roots, steps, cycles
    expect 0 "$motet" bench -d all -b 1K -e 1K $quick
    rows 12
    expect 0 "$motet" bench -o all -b 1K -e 1K $quick
    rows 6
    [ "$(awk '{ print $4 }' "$work/rows" | xargs)" = "sum prod max min avg mulsum" ] || fail "operators"
    expect 0 "$motet" bench broadcast -r -1 -b 1K -e 1K $quick -np 3
    rows 3
    expect 0 "$motet" bench -b 1000 -e 3000 -i 1000 $quick
    rows 3
    out_has 'step: 1000\(bytes\)'
    expect 0 "$motet" bench -b 1K -e 1K -N 2 $quick
    rows 2

    # ranks: processes, threads, several on a thread
    expect 0 "$motet" bench -t 2 -g 2 -b 1K -e 1K $quick
    out_has '^#  Rank  3 '
    rows 1
    expect 0 "$motet" bench hypercube --ranks 3 -b 1K -e 1K $quick
    out_has '^# nRanks 3 is not a power of 2, skipping$'
    rows 0

    # ways of issuing, checking and registering
    for option in '-z 0' '-z 2' '-m 4' '-a 0' '-a 2' '-a 3' '-C 1' '-R 1' '-R 2' '-u 1' '-x 1' \
        '-c 3' '--malloc' '--device cpu' '--rounds 3' '--timing blocking' '--timing eager' \
        '--buffers 2' '--register buffer' '--register window --buffers 2' '--register none'; do
        expect 0 "$motet" bench -b 4K -e 4K $quick $option
        rows 1
    done
    expect 0 "$motet" bench -b 4K -e 4K $quick --timing eager,blocking
    rows 2
    out_has '^# timing  eager$'
    out_has '^# timing  blocking$'
    expect 0 "$motet" bench -b 2M -e 2M $quick -t 1 # checked by several threads
    rows 1
    expect 0 "$motet" bench -b 4K -e 4K $quick -S 1
    rows 1 15
    expect 0 "$motet" bench -b 4K -e 4K $quick -c 0
    awk '{ print $9 $13 }' "$work/out" | grep -q 'N/AN/A' || fail "-c 0 still checks"
    expect 0 "$motet" bench -b 4K -e 4K $quick -O 1
    rows 1

    # accepted without effect, and refused
    for option in -p -y -M -V -I -K -s -F -E -q -Y; do
        expect 0 "$motet" bench -b 4K -e 4K $quick $option 1
        out_has "^# ignored $option 1: "
    done
    for option in '-G 1' '--timing graph' '--timing eager,graph'; do
        expect 64 "$motet" bench $option
        err_has 'no graphs to capture'
    done
    expect 64 "$motet" bench -D 1
    err_has 'no device code'
    expect 64 "$motet" bench --buffers 30
    err_has 'at most as many as calls, 20'
    expect 64 "$motet" bench --vs self --vs-env A=B
    err_has 'both libraries share their processes'
    expect 64 "$motet" bench --vs-env A
    err_has 'need NAME=VALUE'
    expect 2 "$motet" bench --device hip
    err_has 'no AMD GPU'
    expect 64 "$motet" bench --device tpu
    err_has "the device is 'tpu', need auto, cpu, cuda or hip"
    expect 64 "$motet" bench --host-memory --device cuda
    err_has "host-memory has ranks on CPUs, so the device cannot be 'cuda'"
    expect 0 "$motet" bench -G 0 -D 0 -b 4K -e 4K $quick
    for option in '-b x' '-e 4' '-f 1' '-o xor' '-d int7' '-r 2' '-n 0' '-z 9' '-a 4' '-C 2' '-i 0' '--ranks 300' \
        '--timing fast' '--timing' '-R 3' '-R wide' '--buffers 0'; do
        expect 64 "$motet" bench $option
    done

    # other formats
    expect 0 "$motet" bench all_reduce gather -b 1K -e 64K -f 4 $quick --csv "$work/b.csv" -J "$work/b.json" --svg "$work/b.svg"
    is_json "$work/b.json"
    grep -q '"bus_bw"' "$work/b.json" || fail "no bus_bw in JSON"
    [ "$(wc -l <"$work/b.csv")" -eq 17 ] || fail "CSV has not 16 lines and a head"
    awk -F, 'NF != 18 { exit 1 }' "$work/b.csv" || fail "CSV columns"
    if command -v python3 >/dev/null; then
        python3 -c "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])" "$work/b.svg" || fail "SVG is not XML"
    fi
    [ "$(grep -c '<polyline' "$work/b.svg")" -eq 4 ] || fail "not four lines in the plot"
    expect 0 "$motet" bench -b 1K -e 1K $quick --json -
    is_json "$work/out"
    err_has '^# Collective test starting'
    expect 64 "$motet" bench --json - --csv -
    expect 64 "$motet" bench --csv /no/such/folder/x.csv
    err_has 'No such file'

    # bandwidth wanted
    expect 1 env NCCL_TESTS_MIN_BW=1000000 "$motet" bench -b 1K -e 1K $quick
    out_has '^# Avg bus bandwidth +: .* FAILED$'
    expect 0 env NCCL_TESTS_MIN_BW=0.0000001 "$motet" bench -b 1K -e 1K $quick
    out_has '^# Avg bus bandwidth +: .* OK$'

    # two libraries in turns
    cp "$build/src/exports/libnccl.so.2" "$work/other.so"
    expect 0 "$motet" bench -b 1K -e 4K $quick --vs "$work/other.so" --json "$work/vs.json"
    rows 3 19
    out_has "^# vs      $work/other\.so$"
    out_has 'vs-time   ratio  spread'
    grep -q '"ratio"' "$work/vs.json" || fail "no ratio in JSON"
    expect 0 "$motet" bench -b 1K -e 1K $quick --lib "$work/other.so" -z 0
    out_has '^# ignored -z 0: a library has no host streams'
    expect 0 "$motet" bench -b 1K -e 1K $quick --lib "$build/src/exports/libmotet.so" -z 0
    out_lacks '^# ignored -z'

    # the same library twice; NVIDIA's, which is one that is not motet's
    expect 0 "$motet" bench -b 1K -e 1K $quick --vs self
    rows 1 19
    out_has '^# vs      /.* \(built in\)$'
    mkdir -p "$work/motet" "$work/wheels/nvidia/nccl/lib"
    cp "$build/src/exports/libnccl.so.2" "$work/motet/"
    cp "$falsifier" "$work/wheels/nvidia/nccl/lib/libnccl.so.2"
    expect 0 env LD_LIBRARY_PATH="$work/motet" PYTHONPATH="$work/none:$work/wheels" \
        "$motet" bench -b 1K -e 1K $quick --vs nccl --host-memory
    out_has "^# vs      $work/wheels/nvidia/nccl/lib/libnccl\.so\.2$"

    # wrong values, hangs, crashes, and what is no such library
    expect 2 "$motet" bench -b 1K -e 1K --lib "$falsifier"
    err_has 'is not motet, so its ranks want GPU memory'
    for mode in bit past input; do
        expect 1 env FALSIFIER_MODE=$mode "$motet" bench -b 1K -e 1K $quick --lib "$falsifier" --host-memory
        out_has '^# Out of bounds values : [1-9][0-9]* FAILED$'
        [ "$(grep -v '^#' "$work/out" | awk '{ print $9 }')" -gt 0 ] || fail "#wrong is 0"
    done
    expect 1 env FALSIFIER_MODE=bit "$motet" bench -b 1K -e 1K $quick --vs "$falsifier" --host-memory
    out_has 'the library of --vs: [0-9]+ values wrong'
    expect 1 env FALSIFIER_MODE=hang "$motet" bench -b 1K -e 1K -T 1 --lib "$falsifier" --host-memory
    err_has 'no progress for 1 s'
    expect 1 env FALSIFIER_MODE=crash "$motet" bench -b 1K -e 1K --lib "$falsifier" --host-memory
    err_has 'rank 1 \(pid [0-9]+\) was killed by signal 9'
}
passed
