#!/usr/bin/env bash
# A step costs the same for ever. On the demo model and on a random one of the
# paper's 112 M shape: the median step at position 200,000 within 5 % of that at
# 2,000; at one request, chunk boundaries included, each place of a chunk (the
# median of 16 chunks) and p99.9 of all steps within 1.5 times the median step.
# Measures up to 8 times, and prints p99.9 of a loop that only reads as many bytes
# and takes turns with the steps: on a machine that others use that alone may be
# more. Exits 1 on a miss; both models are measured in any case.
#
#   tests/bench/constant_cost.sh [BUILD_FOLDER]
set -euo pipefail
cd "$(dirname "$0")/../.."
bench=${1:-build}/bin/flash-bench
threads=$(nproc)
missed=0
echo "demo:"
"$bench" --model=deploy/models/demo --threads="$threads" --check_constant_cost || missed=1
echo "112m:"
"$bench" --preset=112m --threads="$threads" --check_constant_cost || missed=1
exit "$missed"
