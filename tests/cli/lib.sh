# SPDX-License-Identifier: Apache-2.0
# What the tests of the command share. Each is run as: bash test_X.sh MOTET BUILD_DIR;
# sourced, not run.
# shellcheck shell=bash
set -euo pipefail

# shellcheck disable=SC2034
motet=$1
# shellcheck disable=SC2034
build=$2
checks=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fail SENTENCE: with what the last command printed.
fail() {
    echo "FAILED: $*"
    [ ! -s "$work/out" ] || sed 's/^/  out: /' "$work/out" | head -40
    [ ! -s "$work/err" ] || sed 's/^/  err: /' "$work/err" | head -40
    exit 1
}

# Run a command, keep its output in $work/out and $work/err and its status in $status.
run() {
    status=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || status=$?
}

# expect STATUS COMMAND...
expect() {
    local wanted=$1
    shift
    run "$@"
    [ "$status" -eq "$wanted" ] || fail "'$*' gave $status, wanted $wanted"
    checks=$((checks + 1))
}

# out_has PATTERN, err_has PATTERN: extended regular expression, one line.
out_has() {
    grep -Eq -- "$1" "$work/out" || fail "no line '$1' on stdout"
    checks=$((checks + 1))
}

err_has() {
    grep -Eq -- "$1" "$work/err" || fail "no line '$1' on stderr"
    checks=$((checks + 1))
}

out_lacks() {
    ! grep -Eq -- "$1" "$work/out" || fail "a line '$1' on stdout"
    checks=$((checks + 1))
}

err_lacks() {
    ! grep -Eq -- "$1" "$work/err" || fail "a line '$1' on stderr"
    checks=$((checks + 1))
}

# is_json FILE
is_json() {
    if command -v python3 >/dev/null; then
        python3 -m json.tool "$1" >/dev/null || fail "$1 is not JSON"
        checks=$((checks + 1))
    fi
}

# Wait up to 5 s until a command succeeds.
within_5s() {
    for _ in $(seq 100); do
        ! "$@" 2>/dev/null || return 0
        sleep 0.05
    done
    return 1
}

skip() {
    echo "SKIPPED: $*"
    exit 77
}

# From here on there are two GPUs, those of tests/fakecuda; $driver is their driver.
use_fakecuda() {
    driver=$build/tests/fakecuda/libcuda.so.1
    [ -e "$driver" ] || skip "there is no $driver"
    [ -z "${CLI_SANITIZE:-}" ] || skip "a driver that is mapped at run time does not fit a sanitizer"
    export LD_LIBRARY_PATH=$build/tests/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export FAKECUDA_DEVICES=2
    unset MOTET_DEVICE CUDA_VISIBLE_DEVICES
}

passed() {
    echo "$checks checks passed"
}
