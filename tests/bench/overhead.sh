#!/usr/bin/env bash
# What serving costs: CPU seconds of the server process for a token of 32
# streams, against those of flash-bench for the same steps without a server
# around them, with a random model of the paper's 112 M shape. Exits 1 if it is
# more than 1.05 times as much.
#
#   tests/bench/overhead.sh [BUILD_FOLDER]
#
# Both are measured over whole chunks of 256 tokens a stream, behind a first one:
# a step costs more towards a chunk's end. TEMPERATURE=0 leaves out most of the
# sampling, which flash-bench does not do.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT

"$build/bin/flash-bench" --preset=112m --write_model="$work/112m"
"$build/bin/flash-bench" --model="$work/112m" --batch=32 --steps=512 --json \
  --threads="$(nproc)" >"$work/bench.json"
metrics=127.0.0.1:$(python3 -c 'import socket
s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$build/bin/flash-server" --model="$work/112m" --listen=127.0.0.1:0 --prefix_cache_bytes=0 \
  --metrics_listen="$metrics" --port_file="$work/port" 2>/dev/null &
server=$!
until [ -s "$work/port" ]; do sleep 0.05; done
"$build/bin/flash-loadtest" --server="$(cat "$work/port")" --sessions=32 \
  --prompt_tokens=1 --max_tokens=1000000 --temperature="${TEMPERATURE:-1}" \
  --duration=86400 >/dev/null &

python3 - "$server" "$metrics" "$work/bench.json" <<'EOF'
import glob
import json
import os
import re
import sys
import time
import urllib.request

server, metrics, bench = sys.argv[1:]

def tokens():
    text = urllib.request.urlopen(f"http://{metrics}/metrics").read().decode()
    return float(re.search(r'^flash_tokens_total{kind="generated"} (\S+)', text, re.M)[1])

def cpu_of(stat):  # user and system
    fields = open(stat).read().rpartition(")")[2].split()
    return [int(field) / os.sysconf("SC_CLK_TCK") for field in fields[11:13]]

def cpu_seconds():  # of the process, and of the threads that use most
    threads = [sum(cpu_of(stat)) for stat in glob.glob(f"/proc/{server}/task/*/stat")]
    return (*cpu_of(f"/proc/{server}/stat"), sum(sorted(threads)[-os.cpu_count():]))

def wait_for(number):
    while (now := tokens()) < number:
        time.sleep(0.5)
    return now, time.monotonic(), cpu_seconds()

chunk = 32 * 256
first, begin, before = wait_for(chunk)
last, end, after = wait_for(first + 2 * chunk)
count = last - first
user, system, computing = ((b - a) / count for a, b in zip(before, after))
alone = json.load(open(bench))["decode"][0]
print(f"flash-bench: {alone['tokens_per_second']:.0f} tokens/s, "
      f"{1e6 * alone['cpu_seconds_per_token']:.0f} us of CPU a token")
print(f"flash-server: {count / (end - begin):.0f} tokens/s, {1e6 * (user + system):.0f} us "
      f"of CPU a token ({1e6 * (user + system - computing):.0f} of them on gRPC's threads, "
      f"{1e6 * system:.0f} in the kernel)")
ratio = (user + system) / alone["cpu_seconds_per_token"]
print(f"{ratio:.3f} times as much (at most 1.05)")
sys.exit(ratio > 1.05)
EOF
