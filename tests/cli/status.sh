#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet status on a real job: running, with a stopped rank, after kill -9, as copies.
#
#     status.sh MOTET JOB     JOB: a program that all-reduces without end (examples/kill)
set -euo pipefail

motet=$1 job=$2
work=$(mktemp -d)
export MOTET_TRACE_DIR=$work/traces
mkdir "$MOTET_TRACE_DIR"
runner=
code=0
cases=0

# The process of a recorder file.
pid_of()
{
    local name=${1##*/motet-}
    echo "${name%%-*}"
}

kill_job()
{
    local file
    for file in "$MOTET_TRACE_DIR"/motet-*.trace; do
        [ ! -e "$file" ] || kill -9 "$(pid_of "$file")" 2>/dev/null || true
    done
    [ -z "$runner" ] || wait "$runner" 2>/dev/null || true
}

cleanup()
{
    kill_job
    rm -rf "$work"
}
trap cleanup EXIT

die()
{
    echo "status: $*" >&2
    sed 's/^/    /' "$work/out" >&2
    exit 1
}

# expect STATUS WORDS... : the last report had this exit status and has these words.
expect()
{
    local want=$1 words
    shift
    [ "$code" = "$want" ] || die "exit status $code, expected $want"
    for words; do
        grep -qF -- "$words" "$work/out" || die "'$words' is not in the report"
    done
    cases=$((cases + 1))
}

status()
{
    code=0
    "$motet" status "$@" >"$work/out" 2>&1 || code=$?
}

# until_status SECONDS WORDS ARGS... : ask again until the report has these words.
until_status()
{
    local end=$((SECONDS + $1)) words=$2
    shift 2
    status "$@"
    while ! grep -qF -- "$words" "$work/out"; do
        [ $SECONDS -lt $end ] || die "'$words' did not come"
        sleep 0.1
        status "$@"
    done
}

echo "- nothing runs"
status
expect 0 "no communicator is running here (looked in '$MOTET_TRACE_DIR')"
status --json
expect 0 '"communicators": []' '"exit_status": 0'

echo "- wrong usage"
status --no-such-option
expect 64 "--no-such-option" "--help"
status --dir
expect 64 "needs a value"
status "$work/nofile"
expect 2 "No such file or directory"
status "$0"
expect 2 "not a recorder file"
status --help
expect 0 "usage: motet status"
code=0
MOTET_OP_TIMEOUT_S=soon MOTET_TRACE_DIR='' "$motet" status >"$work/out" 2>&1 || code=$?
expect 64 "MOTET_OP_TIMEOUT_S"

echo "- a running job"
"$motet" run -n 3 -- "$job" 99 >"$work/job" 2>&1 &
runner=$!
until_status 60 "3 ranks" # the communicator exists
until_status 60 "all_reduce 4096 x float, max"
status
expect 0 "fine: no rank is dead, late or missing"
status --all --json
expect 0 '"operations": [' '"process": "alive"'

echo "- a stopped rank"
stopped=$(pid_of "$(echo "$MOTET_TRACE_DIR"/motet-*-1.trace)")
kill -STOP "$stopped"
until_status 60 "rank 1 is stopped"
expect 1 "kill -CONT $stopped" "problem RANK_STOPPED"
until_status 60 "waits for rank 1 for"
kill -CONT "$stopped"
until_status 60 "fine: no rank is dead"

echo "- a killed rank"
kill -9 "$stopped"
until_status 60 "ranks 0, 2 failed with ncclRemoteError"
expect 1 "RANK_DEAD: rank 1 is dead: process $stopped (" "has died"
status --json
expect 1 '"code": "RANK_DEAD"' '"severity": "problem"' '"exit_status": 1'

echo "- copies"
cp -r "$MOTET_TRACE_DIR" "$work/copies"
kill_job
rm -f "$MOTET_TRACE_DIR"/motet-*.trace
status "$work/copies"
expect 1 "3 ranks" "rank 1 is dead" "ranks 0, 2 failed with ncclRemoteError"
mv "$work/copies"/motet-*-0.trace "$work/copies/first.trace"
status --dir "$work/copies" --all
expect 1 "3 ranks"
status "$work/copies/first.trace"
expect 1 "2 of 3 ranks have no recorder file here: 1, 2"

echo "status: $cases cases"
