#!/usr/bin/env bash
# 10,000 sessions through 8 slots: a small random model with the store in memory,
# and the demo model with a directory as store. Every session is gone on with, and
# equals the same text in one go. With the store in memory, where a session is live
# again in the time of a copy, its first token may come 2 ms later than that of a
# prompt of one id. With the directory the server's memory stays under 1 GiB.
# Exits 1 on a miss. Takes 5 GB of memory and 43 GB of disk for that many: what
# sessions were before their last answer stands there too, where there is room.
#
#   tests/bench/parked_sessions.sh [BUILD_FOLDER] [SESSIONS] [SESSIONS_IN_DIRECTORY]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
work=$(mktemp -d)
trap 'kill -TERM $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
missed=0

# measure NAME MODEL SESSIONS MAX_ADDED_MS MAX_MIB SERVER_FLAG...
measure() {
  local name=$1 model=$2 sessions=$3 added=$4 most=$5
  shift 5
  echo "$name, $sessions sessions:"
  rm -f "$work/port"
  "$build/bin/flash-server" --model="$model" --listen=127.0.0.1:0 \
    --metrics_listen= --slots=8 --port_file="$work/port" "$@" 2>"$work/log" &
  local server=$!
  until [ -s "$work/port" ]; do
    kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
    sleep 0.05
  done
  "$build/bin/flash-session-bench" --server="$(cat "$work/port")" \
    --sessions="$sessions" --max_added_ms="$added" || missed=1
  local resident
  resident=$(awk '/VmHWM/ {print int($2 / 1024)}' "/proc/$server/status")
  echo "most memory of the server: $resident MiB (at most $most)"
  [ "$resident" -le "$most" ] || missed=1
  kill -TERM "$server"
  wait "$server" || true
}

"$build/bin/flash-bench" --preset=tiny --write_model="$work/tiny"
measure "small random model, store in memory" "$work/tiny" "${2:-10000}" 2 4608 \
  --session_store=memory --session_store_bytes=4294967296 \
  --session_cache_bytes=16777216 --prefix_cache_bytes=16777216
measure "demo model, store in a directory" deploy/models/demo "${3:-10000}" 0 1024 \
  --session_store="dir:$work/store" --session_store_bytes=42949672960 \
  --session_cache_bytes=134217728 --prefix_cache_bytes=134217728
exit "$missed"
