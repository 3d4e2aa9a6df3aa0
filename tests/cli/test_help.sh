#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Help everywhere, and mistakes answered with what was meant.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"

expect 64 "$motet"
err_has '^usage: motet COMMAND'
expect 0 "$motet" --help
out_has '^usage: motet COMMAND'
commands=$(sed -n 's/^  \([a-z]*\)  .*/\1/p' "$work/out")
[ "$(echo "$commands" | wc -l)" -ge 6 ] || fail "fewer than six commands listed"

for command in $commands; do
    for how in "$command --help" "help $command"; do
        # shellcheck disable=SC2086
        expect 0 "$motet" $how
        out_has "^usage: motet $command"
        out_has '\-\-help'
        [ ! -s "$work/err" ] || fail "help on stderr"
    done
    expect 64 "$motet" "$command" --no-such-option
    err_has "motet $command: .*--no-such-option"
    [ ! -s "$work/out" ] || fail "a usage error on stdout"
done

expect 64 "$motet" smok
err_has "'smok' is not a command; did you mean 'smoke'"
expect 64 "$motet" utterly-different
err_has "'utterly-different' is not a command$"
expect 64 "$motet" tuned
err_has "'tuned' is not a command; did you mean 'tune'"
expect 64 "$motet" help smok
expect 0 "$motet" --version
out_has '^motet [0-9]+\.[0-9]+'

expect 64 "$motet" smoke extra
err_has "unexpected argument 'extra'"
expect 64 "$motet" smoke -n
err_has "option '-n' needs a value"
expect 64 "$motet" smoke -n 0
err_has "-n is '0', need 1 to 128"
expect 64 "$motet" smoke -n two
expect 64 "$motet" smoke --timeout soon
expect 64 "$motet" params x
expect 64 "$motet" version x
expect 64 "$motet" version --json=1
passed
