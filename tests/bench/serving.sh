#!/usr/bin/env bash
# Tokens per second through a real server at 1, 8 and 32 streams, for the demo
# model and for a random model of the paper's 112 M shape: the README's table.
#
#   tests/bench/serving.sh [BUILD_FOLDER] [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
seconds=${2:-15}
work=$(mktemp -d)
server=
trap 'kill -TERM $server 2>/dev/null || true; rm -rf "$work"' EXIT

"$build/bin/flash-bench" --preset=112m --write_model="$work/112m"
for model in deploy/models/demo "$work/112m"; do
  rm -f "$work/port"
  "$build/bin/flash-server" --model="$model" --listen=127.0.0.1:0 --prefix_cache_bytes=0 \
    --metrics_listen= --port_file="$work/port" 2>/dev/null &
  server=$!
  until [ -s "$work/port" ]; do sleep 0.05; done
  for sessions in 1 8 32; do
    echo "== $(basename "$model"), $sessions streams"
    "$build/bin/flash-loadtest" --server="$(cat "$work/port")" \
      --sessions="$sessions" --prompt_tokens=64 --max_tokens=256 \
      --duration="$seconds" --output_json="$work/report.json"
  done
  kill -TERM "$server"
  wait "$server" || true
done
