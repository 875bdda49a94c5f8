#!/usr/bin/env bash
# A step costs the same for ever: on the demo model and on a random one of the
# paper's 112 M shape, the median step at position 200,000 within 5 % of that at
# 2,000, and at one request p99.9 of the steps within 1.5 times the median, chunk
# boundaries included. Exits 1 on a miss. Wants a machine that does nothing else.
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
