#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet run -n: environment, output, exit status, and that nothing is left behind.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT OMP_NUM_THREADS

# A number that no other process has in its arguments: to look for what is left.
token=73$$
left() { pgrep -f "^sleep $token" >/dev/null; }
gone() { ! left; }
nothing_left() {
    within_5s gone || fail "$1: a process is left"
    checks=$((checks + 1))
}

# --- environment
expect 0 "$motet" run -n 3 -- sh -c \
    'echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $MASTER_ADDR"'
for r in 0 1 2; do
    out_has "^\[$r\] $r 3 $r 3 0 0 127\.0\.0\.1$"
done
expect 0 "$motet" run -n 2 -- sh -c 'echo "$MASTER_PORT $TORCHELASTIC_RUN_ID"'
[ "$(sed 's/^\[.\] //' "$work/out" | sort -u | wc -l)" -eq 1 ] || fail "ranks do not agree on port and id"
out_has '^\[0\] [0-9]+ motet-[0-9a-f]{16}$'
expect 0 env MASTER_PORT=4711 "$motet" run -n 1 --env A=1 --env B='x y' --device cpu -- \
    sh -c 'echo "$MASTER_PORT/$A/$B/$MOTET_DEVICE"'
out_has '^\[0\] 4711/1/x y/cpu$'
expect 64 "$motet" run -n 1 --env novalue -- true

# --- output
expect 0 "$motet" run -n 2 --tag box -- sh -c 'echo out; echo err >&2'
out_has '^\[box 1\] out$'
err_has '^\[box 1\] err$'
out_lacks err
err_lacks out
expect 0 "$motet" run -n 1 --no-prefix -- printf 'a\nb'
[ "$(cat "$work/out")" = $'a\nb' ] || fail "output changed"
expect 0 "$motet" run -n 4 -- sh -c \
    'for i in $(seq 300); do printf "%s-%s-%01000d-end\n" $RANK $i 0; done'
[ "$(grep -Ec '^\[([0-3])\] \1-[0-9]+-0{1000}-end$' "$work/out")" -eq 1200 ] || fail "torn or lost lines"
expect 0 "$motet" run -n 2 -- printf 'no newline'
[ "$(grep -c '^\[[01]\] no newline$' "$work/out")" -eq 2 ] || fail "the last line was lost"
status=0
printf 'to rank 0' | "$motet" run -n 2 -- sh -c 'echo "$RANK:$(cat)"' >"$work/out" || status=$?
[ "$status" -eq 0 ] || fail "stdin: status $status"
out_has '^\[0\] 0:to rank 0$'
out_has '^\[1\] 1:$'

# --- exit status
expect 3 "$motet" run -n 3 -- sh -c 'exit $((RANK == 1 ? 3 : 0))'
err_has 'rank 1 \(pid [0-9]+\) failed with status 3'
expect 137 "$motet" run -n 2 -- sh -c '[ $RANK = 0 ] && exec sleep 60; kill -9 $$'
err_has 'rank 1 .* was killed by signal 9'
# Both have ended when it looks, it being stopped: rank 0 did since rank 1 was killed.
cat >"$work/killed.sh" <<'EOF'
if [ "$RANK" = 1 ]; then
    echo $$ >"$1/victim"
    kill -STOP "$PPID"
    kill -KILL $$
fi
until [ -s "$1/victim" ]; do sleep 0.05; done
until grep -q '^State:.*Z' "/proc/$(cat "$1/victim")/status"; do sleep 0.05; done
(sleep 0.5 && kill -CONT "$PPID") &
exit 3
EOF
expect 137 "$motet" run -n 2 -- sh "$work/killed.sh" "$work"
err_has 'rank 1 .* was killed by signal 9'
expect 127 "$motet" run -n 2 -- /no/such/program
err_has "run '/no/such/program': No such file"
expect 126 "$motet" run -n 2 -- /etc/passwd
expect 64 "$motet" run -n 2
expect 64 "$motet" run -n 0 -- true
expect 64 "$motet" run -n many -- true

# --- ending together
start=$SECONDS
expect 5 "$motet" run -n 3 -- sh -c "[ \$RANK = 2 ] && exit 5; exec sleep $token"
[ $((SECONDS - start)) -le 4 ] || fail "the others were not ended"
nothing_left "after a failure"
expect 5 "$motet" run -n 2 --grace 1 -- sh -c \
    "[ \$RANK = 1 ] && { sleep 0.3; exit 5; }; trap '' TERM; sleep $token & wait; wait"
nothing_left "a rank that ignores SIGTERM"
expect 0 "$motet" run -n 2 --grace 1 -- sh -c "setsid sleep $token >/dev/null 2>&1 & exit 0"
nothing_left "a daemon of a rank"
expect 124 "$motet" run -n 2 --timeout 1 -- sleep "$token"
err_has '1 s are over'
nothing_left "after the timeout"

# --- signals
signalled() { # SIGNAL STATUS
    local pid status=0
    "$motet" run -n 2 -- sleep "$token" >"$work/out" 2>"$work/err" &
    pid=$!
    within_5s left || fail "ranks did not start"
    kill "-$1" "$pid"
    wait "$pid" 2>/dev/null || status=$?
    [ "$status" -eq "$2" ] || fail "SIG$1 gave $status, wanted $2"
    nothing_left "after SIG$1"
}
signalled TERM 143
signalled HUP 129
signalled KILL 137 # the kernel ends the ranks then
"$motet" run -n 2 -- sh -c 'trap "echo got it; exit 0" USR1; echo up; while :; do sleep 0.05; done' \
    >"$work/out" 2>"$work/err" &
pid=$!
both_up() { [ "$(grep -c up "$work/out")" -eq 2 ]; }
within_5s both_up || fail "ranks did not start"
kill -USR1 "$pid"
wait "$pid" || fail "SIGUSR1 was not passed on"
[ "$(grep -c 'got it' "$work/out")" -eq 2 ] || fail "SIGUSR1 did not reach both ranks"

# --- a reader that leaves
status=0
{ timeout 20 "$motet" run -n 2 -- yes 2>"$work/err" || echo $? >"$work/yes"; } | head -1 >"$work/out"
out_has '^\[[01]\] y$'
[ "$(cat "$work/yes")" -eq 141 ] || fail "closed stdout gave $(cat "$work/yes"), wanted 141"
passed
