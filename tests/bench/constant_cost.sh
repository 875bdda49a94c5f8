#!/usr/bin/env bash
# A step costs the same for ever: on the demo model and on a random one of the
# paper's 112 M shape, the median step at position 200,000 within 5 % of that at
# 2,000, and at one request no place of a chunk, its boundary included, dearer
# than 1.5 times the median step. p99.9 of all steps is printed beside it: on a
# machine that others use it is theirs. Exits 1 on a miss.
#
#   tests/bench/constant_cost.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
bench=${1:-build}/bin/flash-bench
threads=$(nproc)
echo "demo:"
"$bench" --model=deploy/models/demo --threads="$threads" --check_constant_cost
echo "112m:"
"$bench" --preset=112m --threads="$threads" --check_constant_cost
