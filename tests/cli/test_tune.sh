#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# motet tune on the GPUs of tests/fakecuda: the plan that it prints is one that the library
# takes, and says of each rule what it gains.
set -euo pipefail
# shellcheck source=tests/cli/lib.sh
source "$(dirname "$0")/lib.sh"
use_fakecuda
export MOTET_MAX_CTAS=2

# What is in the environment steers the ranks that are measured no more than the plan does.
export MOTET_PLAN=all_reduce:0-=ll NCCL_PROTO=ll
expect 0 "$motet" tune -b 4K -e 64K -f 16 --rounds 3
unset MOTET_PLAN NCCL_PROTO
out_has '^# 2 ranks, graph, microseconds'
for bytes in 4096 65536; do
    out_has "^all_reduce +$bytes( +[0-9.]+){5}  (ll|staged|twoshot|ce|-) +[0-9.]+$"
done
for name in all_gather reduce_scatter all_to_all; do # bytes of a rank
    out_has "^$name +2048( +[0-9.]+){4}  (ll|staged|ce|-) +[0-9.]+$"
done
out_lacks '^send '

# Copies by the stand-in's engines take longer than anything: nobody chooses them. What is
# chosen is a plan that the library reads.
out_lacks '=ce'
plan=$(sed -n 's/^MOTET_PLAN=//p' "$work/out")
if [ -n "$plan" ]; then
    out_has '^# measured again, with the plan$'
    expect 0 env MOTET_PLAN="$plan" "$motet" bench -b 4K -e 64K -f 16 -n 2 -w 1 --rounds 1 --explain
    case $plan in
        all_reduce:0-*) out_has 'a rule of MOTET_PLAN' ;;
    esac
else
    out_has 'no MOTET_PLAN is needed'
fi

# Messages by copies are tried where they can be: without a capture, between two ranks.
expect 0 "$motet" tune --timing eager -b 4K -e 4K --rounds 1 -np 2 --json
is_json "$work/out"
out_has '^  "timing": "eager",$'
out_has '^      "name": "send",$'
[ "$(grep -c '"ce": [0-9]' "$work/out")" -eq 7 ] || fail "copies were not tried for each collective"

# --- what cannot be
expect 2 "$motet" tune --device cpu
err_has 'there is no GPU here: plans are for GPUs'
expect 2 env FAKECUDA_DEVICES=1 "$motet" tune
err_has '1 GPUs are here: need one for each rank'
expect 2 "$motet" tune --ranks 3
err_has '2 GPUs are here'
expect 1 env FAKECUDA_STICKY=20 "$motet" tune -b 4K -e 4K --rounds 1
for wrong in '--ranks 1' '--ranks 17' '-b 3' '-b x' '-f 1' '--rounds 0' '--timing blocking' '--nonsense' 'all_reduce'; do
    # shellcheck disable=SC2086
    expect 64 "$motet" tune $wrong
done
passed
