#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# Programs that nobody here wrote, on motet, on real GPUs: nccl-tests, PyTorch, CuPy and
# vLLM's binding. Takes the folders of the built peers; README.md says what must be in
# them. Each piece leaves NAME.log and NAME.verdict in --out; a piece that has passed
# is not run again, so the same command is repeated until nothing is left.
#
#   bench/gpu/peers.sh --motet BUILD --out FOLDER [--nccl-tests FOLDER] [--vllm FILE]
#       [--ranks N] [--seconds S] [--list] [PIECE-PATTERN...]
#
#   --motet       a build folder, or one that bench/gpu/pack.sh made
#   --nccl-tests  holds ours/, stock/ (and ours-mpi/, stock-mpi/), each with *_perf, and
#                 lib/ with libcudart if the machine has none
#   --vllm        vLLM's pynccl_wrapper.py
#   --ranks       2; on fewer GPUs than ranks, ranks share
#   --seconds     no piece is begun after so long; default 540
#
# Exit status: 0 all pieces asked for have passed, 1 some failed, 2 some are left.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
readonly here

die() {
    echo "peers.sh: $*" >&2
    exit 64
}

motet='' out='' tests='' vllm='' ranks=2 seconds=540 list=no
patterns=()
while [ $# -gt 0 ]; do
    case $1 in
        --motet | --out | --nccl-tests | --vllm | --ranks | --seconds)
            [ $# -ge 2 ] || die "$1 needs a value"
            ;;&
        --motet) motet=$2 && shift 2 ;;
        --out) out=$2 && shift 2 ;;
        --nccl-tests) tests=$2 && shift 2 ;;
        --vllm) vllm=$2 && shift 2 ;;
        --ranks) ranks=$2 && shift 2 ;;
        --seconds) seconds=$2 && shift 2 ;;
        --list) list=yes && shift ;;
        --*) die "no option $1" ;;
        *) patterns+=("$1") && shift ;;
    esac
done
[ -n "$motet" ] || die "--motet is needed"
[ -n "$out" ] || die "--out is needed"

# A build folder keeps its files where cmake puts them, a packed one in bin and lib.
find_one() {
    local place
    for place in "$motet/lib/$1" "$motet/bin/$1" "$motet/src/exports/$1" \
        "$motet/tools/motet/$1" "$motet/bench/gpu/$1"; do
        [ ! -e "$place" ] || {
            realpath -s "$place"
            return
        }
    done
    die "no $1 in $motet"
}
library=$(find_one libnccl.so.2)
command=$(find_one motet)
onegpu=$(find_one onegpu.so)
gpus=$(nvidia-smi -L 2>/dev/null | wc -l)
[ "$gpus" -gt 0 ] || {
    echo "SKIPPED  no GPU here: nvidia-smi lists none"
    exit 77
}
[ -z "$tests" ] || tests=$(realpath "$tests")
[ -z "$vllm" ] || vllm=$(realpath "$vllm")
mkdir -p "$out"
out=$(realpath "$out")
have_mpi=no
if command -v mpirun >/dev/null && [ -d "$tests/ours-mpi" ] &&
    LD_LIBRARY_PATH=$(dirname "$library"):$tests/lib:${LD_LIBRARY_PATH:-} \
        ldd "$tests/ours-mpi/all_reduce_perf" 2>/dev/null | grep -q 'libmpi.* => /'; then
    have_mpi=yes
fi
readonly library command onegpu gpus have_mpi

# Streams beyond the connections share one, where a kernel may lie behind its peer's.
export CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_DEBUG=${NCCL_DEBUG:-WARN}
export MOTET_OP_TIMEOUT_S=${MOTET_OP_TIMEOUT_S:-60}
export LD_LIBRARY_PATH=${tests:+$tests/lib:}${LD_LIBRARY_PATH:-}

# ---- nccl-tests ----

# tests_run VARIANT MODE PROGRAM OPTION...: one run. VARIANT ours finds the library by
# the loader's path, stock has it put in front; `motet run` keeps what is in LD_PRELOAD.
tests_run() {
    local folder=$1 mode=$2 program=$3 settings=() start=()
    case $1 in
        ours) settings=("LD_LIBRARY_PATH=$(dirname "$library"):$LD_LIBRARY_PATH") ;;
        stock) start=("$command" run --as nccl --) ;;
    esac
    shift 3
    case $mode in
        threads) set -- -t "$ranks" -g 1 "$@" ;;
        gpus) set -- -t 1 -g "$ranks" "$@" ;;
        processes)
            folder=$folder-mpi
            start+=(mpirun --allow-run-as-root --oversubscribe --bind-to none
                --mca btl 'self,vader' -n "$ranks")
            ;;
    esac
    if [ "$gpus" -lt "$ranks" ]; then
        case $mode in
            processes) settings+=(NCCL_TESTS_DEVICE=0) ;;
            *) settings+=("LD_PRELOAD=$onegpu") ;;
        esac
    fi
    env "${settings[@]}" "${start[@]}" "$tests/$folder/${program}_perf" "$@"
}

# What the pieces of nccl-tests are: NAME VARIANT MODE PROGRAM OPTION...
programs='all_reduce all_gather reduce_scatter reduce broadcast sendrecv alltoall gather scatter hypercube'
tests_pieces() {
    local variant mode program main=threads
    [ "$have_mpi" = no ] || [ "$gpus" -lt "$ranks" ] || main=processes
    for variant in ours stock; do
        for program in $programs; do
            echo "tests/$variant/$program/all $variant $main $program -d all -o all -b 8 -e 16M -f 2 -n 5 -c 1"
        done
        for program in $programs; do
            echo "tests/$variant/$program/large $variant $main $program -d float -b 32M -e 1G -f 2 -n 5 -c 1"
            echo "tests/$variant/$program/large_bf16 $variant $main $program -d bfloat16 -b 32M -e 1G -f 2 -n 5 -c 1"
            echo "tests/$variant/$program/graph $variant $main $program -d float -b 8 -e 16M -f 4 -n 5 -c 1 -G 20"
            echo "tests/$variant/$program/register $variant $main $program -d float -b 8 -e 16M -f 4 -n 5 -c 1 -R 1"
            echo "tests/$variant/$program/window $variant $main $program -d float -b 8 -e 16M -f 4 -n 5 -c 1 -R 2"
            for mode in threads gpus processes; do
                [ "$mode" != "$main" ] || continue
                # Ranks of other processes on one GPU take turns: small sizes, few rounds.
                if [ "$mode" = processes ] && [ "$gpus" -lt "$ranks" ]; then
                    echo "tests/$variant/$program/$mode $variant $mode $program -d float -b 8 -e 1M -f 8 -n 2 -w 1 -c 1"
                else
                    echo "tests/$variant/$program/$mode $variant $mode $program -d float -b 8 -e 16M -f 4 -n 5 -c 1"
                fi
            done
            for type in float bfloat16 int8; do
                for op in sum avg; do
                    echo "tests/$variant/$program/blocking_${type}_$op $variant $main $program -d $type -o $op -b 8 -e 16M -f 4 -n 5 -c 1 -z 1"
                done
            done
        done
    done
}

# ---- the others ----

client_pieces() {
    local program
    for program in torch_collectives torch_training torch_life cupy_nccl; do
        echo "client/$program python $program"
    done
    [ -z "$vllm" ] || echo "client/vllm_pynccl python vllm_pynccl"
}

python_run() {
    local extra=()
    [ "$1" != vllm_pynccl ] || extra=(--wrapper "$vllm")
    # NVIDIA's library takes no two ranks on one GPU: then there is nothing to compare with.
    if [ "$1" = torch_training ] && [ "$gpus" -ge "$ranks" ]; then
        [ -e "$out/losses.json" ] ||
            python3 "$here/$1.py" --ranks "$ranks" --write "$out/losses.json"
        extra=(--against "$out/losses.json")
    fi
    "$command" run --as nccl -- python3 "$here/$1.py" --ranks "$ranks" "${extra[@]}"
}

# ---- running ----

wanted() {
    local pattern
    [ ${#patterns[@]} -gt 0 ] || return 0
    for pattern in "${patterns[@]}"; do
        # The pattern is one: it is not quoted.
        # shellcheck disable=SC2053
        [[ $1 != $pattern ]] || return 0
    done
    return 1
}

# run_piece NAME KIND...: 0 passed, 1 failed.
run_piece() {
    local name=$1 file began=$SECONDS status=0 limit
    file=$out/${1//\//.}
    shift
    limit=$((seconds - SECONDS > 240 ? 240 : seconds - SECONDS))
    echo "== $name: $*" >"$file.log"
    if [ "$1" = python ]; then
        [ "$limit" -lt 200 ] || limit=$((seconds - SECONDS))
        timeout -k 10 "$limit" bash -c "$(declare -f python_run); python_run \"\$@\"" _ "$2" >>"$file.log" 2>&1 || status=$?
    else
        timeout -k 10 "$limit" bash -c "$(declare -f tests_run); tests_run \"\$@\"" _ "$@" >>"$file.log" 2>&1 || status=$?
    fi
    python3 "$here/verdict.py" "$file.log" "$status" "$1" "$file.csv" >"$file.verdict" || true
    printf '%-46s %s (%d s)\n' "$name" "$(cat "$file.verdict")" $((SECONDS - began))
    grep -q '^passed' "$file.verdict"
}

export library command onegpu gpus tests vllm ranks here out
failed=0 left=0 passed=0
while read -r -a piece; do
    name=${piece[0]}
    wanted "$name" || continue
    if [ "$list" = yes ]; then
        echo "${piece[*]}"
        continue
    fi
    if [ "${piece[2]}" = processes ] && [ "$have_mpi" = no ]; then
        continue
    fi
    if grep -qs '^passed' "$out/${name//\//.}.verdict"; then
        passed=$((passed + 1))
    elif [ $((seconds - SECONDS)) -lt 30 ]; then
        left=$((left + 1))
    elif run_piece "${piece[@]}" </dev/null; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done < <(
    [ -z "$tests" ] || tests_pieces
    client_pieces
)
[ "$list" = no ] || exit 0
[ "$have_mpi" = yes ] || echo "processes: left out, there is no Open MPI that the programs run with"
echo "peers: $passed passed, $failed failed, $left left"
[ "$failed" -eq 0 ] || exit 1
[ "$left" -eq 0 ] || exit 2
