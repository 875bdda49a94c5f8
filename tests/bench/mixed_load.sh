#!/usr/bin/env bash
# What a long prompt does to 31 streams that decode, and they to it, through a
# real server, with a random model of the paper's 112 M shape. Exits 1 unless
#   - the streams' gap between two tokens (p99) is at most 2.5 times as long
#     while the prompt runs as without it, and
#   - the prompt runs at 0.45 of the speed that it has alone, or faster.
#
#   tests/bench/mixed_load.sh [--full] [BUILD_FOLDER]
#
# The prompt has 32,768 tokens, or PROMPT_TOKENS of them, or with --full 1,000,000
# (a quarter of an hour on two cores).
set -euo pipefail
cd "$(dirname "$0")/../.."
prompt_tokens=${PROMPT_TOKENS:-32768}
if [ "${1:-}" = --full ]; then
  prompt_tokens=1000000
  shift
fi
build=${1:-build}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

"$build/bin/flash-bench" --preset=112m --write_model="$work/112m"
"$build/bin/flash-server" --model="$work/112m" --listen=127.0.0.1:0 --prefix_cache_bytes=0 \
  --metrics_listen= --port_file="$work/port" 2>/dev/null &
until [ -s "$work/port" ]; do sleep 0.05; done

loadtest=("$build/bin/flash-loadtest" --server="$(cat "$work/port")")
streams=("${loadtest[@]}" --sessions=31 --prompt_tokens=64 --max_tokens=1000000)
prompt=("${loadtest[@]}" --sessions=1 --prompt_tokens="$prompt_tokens"
        --max_tokens=1 --duration=0 --requests=1)

"${streams[@]}" --duration=2 >/dev/null  # the first of everything is slow
"${prompt[@]}" --output_json="$work/prompt_alone.json" >/dev/null
"${streams[@]}" --warmup=4 --duration=12 \
  --output_json="$work/streams_alone.json" >/dev/null
"${streams[@]}" --warmup=4 --duration=86400 \
  --output_json="$work/streams_with.json" >/dev/null &
load=$!
sleep 3.5  # what is measured begins when the prompt runs, and ends with it
"${prompt[@]}" --output_json="$work/prompt_with.json" >/dev/null
kill -TERM "$load"
wait "$load"

python3 - "$work" "$prompt_tokens" <<'EOF'
import json
import sys

def read(name):
    return json.load(open(f"{sys.argv[1]}/{name}.json"))

tokens = int(sys.argv[2])
gaps = [read(name)["gap_ms"] for name in ("streams_alone", "streams_with")]
rates = [read(name)["tokens_per_second"] for name in ("streams_alone", "streams_with")]
speeds = [1000 * tokens / read(name)["first_token_ms"]["mean"]
          for name in ("prompt_alone", "prompt_with")]
gap, speed = gaps[1]["p99"] / gaps[0]["p99"], speeds[1] / speeds[0]
print(f"31 streams, a prompt of {tokens} tokens")
print(f"gap, ms: p50 {gaps[0]['p50']:.1f} without it, {gaps[1]['p50']:.1f} with it; "
      f"p99 {gaps[0]['p99']:.1f} and {gaps[1]['p99']:.1f}: {gap:.2f} times (at most 2.5)")
print(f"streams' tokens/s: {rates[0]:.0f} and {rates[1]:.0f}")
print(f"prompt tokens/s: alone {speeds[0]:.0f}, with them {speeds[1]:.0f}: "
      f"{speed:.2f} of it (at least 0.45)")
sys.exit(gap > 2.5 or speed < 0.45)
EOF
