#!/usr/bin/env bash
# How many times as many tokens per second one stream gets of int8 weights as of
# bfloat16 ones, on a random model of the paper's 112 M shape: the two in turns,
# and the median of the rounds. Exits 1 below 1.6. Wants a machine that does
# nothing else.
#
#   tests/bench/int8.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
bench=${1:-build}/bin/flash-bench

tokens_per_second() {
  "$bench" --preset=112m --batch=1 --threads="$(nproc)" --weights="$1" |
    awk '$1 == 1 { print $2 }'
}

ratios=()
for round in 1 2 3 4 5; do
  wide=$(tokens_per_second bfloat16)
  narrow=$(tokens_per_second int8)
  ratios+=("$(awk "BEGIN { printf \"%.2f\", $narrow / $wide }")")
  echo "round $round: bfloat16 $wide tokens/s, int8 $narrow, ratio ${ratios[-1]}"
done
median=$(printf '%s\n' "${ratios[@]}" | sort -n | sed -n 3p)
echo "median ratio: $median (at least 1.6)"
awk "BEGIN { exit !($median >= 1.6) }"
