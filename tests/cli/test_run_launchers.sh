#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet run without -n: another launcher's ranks.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
for name in $(compgen -e | grep -E '^(SLURM|PMI|OMPI|PMIX|MPI)' || true); do unset "$name"; done

expect 64 "$motet" run -- true
err_has 'say -n N or --as'
expect 0 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 \
    OMPI_COMM_WORLD_LOCAL_SIZE=2 "$motet" run -- sh -c 'echo "$RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR"'
out_has '^1 2 1 127\.0\.0\.1$' # no prefix: the launcher has its own
expect 0 env RANK=1 WORLD_SIZE=2 MASTER_ADDR=there "$motet" run -- sh -c 'echo "$RANK $MASTER_ADDR"'
out_has '^1 there$'
expect 0 env OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 WORLD_SIZE=5 "$motet" run -- sh -c 'echo "$RANK $WORLD_SIZE"'
out_has '^1 5$' # what is set stays
expect 64 env SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=1 "$motet" run -- true
err_has 'srun motet run'
expect 64 env PMIX_RANK=0 "$motet" run -- true
err_has 'no number of ranks'
expect 7 env RANK=0 WORLD_SIZE=1 "$motet" run -- sh -c 'exit 7'
expect 127 env RANK=0 WORLD_SIZE=1 "$motet" run -- /no/such/program

# It becomes the command: same process.
status=0
RANK=0 WORLD_SIZE=1 "$motet" run -- sh -c 'echo $$' >"$work/out" &
pid=$!
wait "$pid"
[ "$(cat "$work/out")" -eq "$pid" ] || fail "the command is another process"

# The real ones, where they are installed.
for mpi in mpirun.openmpi mpirun.mpich; do
    command -v "$mpi" >/dev/null || continue
    extra=
    [ "$mpi" != mpirun.openmpi ] || extra='--allow-run-as-root --oversubscribe'
    # shellcheck disable=SC2086
    if ! timeout 60 "$mpi" $extra -np 2 true >/dev/null 2>&1; then
        echo "note: $mpi does not work here"
        continue
    fi
    # shellcheck disable=SC2086
    expect 0 timeout 60 "$mpi" $extra -np 2 "$motet" run -- \
        sh -c 'echo "rank $RANK of $WORLD_SIZE at $MASTER_ADDR:$MASTER_PORT"'
    out_has '^rank 0 of 2 at 127\.0\.0\.1:2[0-9]{4}$'
    out_has '^rank 1 of 2 at 127\.0\.0\.1:2[0-9]{4}$'
    [ "$(sed 's/.* at //' "$work/out" | sort -u | wc -l)" -eq 1 ] || fail "$mpi: two addresses"
done
passed
