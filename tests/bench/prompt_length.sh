#!/usr/bin/env bash
# A prompt is linear in its length: a million tokens at the speed of 8,192, in
# the same memory, on the demo model. The speed of a chunk is the median of all
# chunks. Exits 1 if the longer one is slower than 0.95 of the shorter one, or
# takes 16 MB more. Wants two minutes of a machine that does nothing else.
#
#   tests/bench/prompt_length.sh [BUILD_FOLDER] [TOKENS]
set -euo pipefail
cd "$(dirname "$0")/../.."
python3 - "${1:-build}/bin/flash-bench" "${2:-1048576}" <<'EOF'
import json, os, subprocess, sys

bench, long_prompt = sys.argv[1], int(sys.argv[2])

def measure(tokens):
    process = subprocess.Popen(
        [bench, "--preset=demo", "--batch=1", "--steps=1", "--json",
         f"--prompt_tokens={tokens}", f"--threads={os.cpu_count()}"],
        stdout=subprocess.PIPE)
    report = json.load(process.stdout)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        sys.exit("flash-bench failed")
    speed = report["prompt"]["tokens_per_second"]
    print(f"{tokens} tokens: {speed:.0f} tokens/s, "
          f"{usage.ru_maxrss / 1024:.1f} MiB resident at most", flush=True)
    return speed, usage.ru_maxrss * 1024

for attempt in range(3):  # others use this machine too
    short, short_memory = measure(8192)
    long, long_memory = measure(long_prompt)
    print(f"ratio {long / short:.3f} (at least 0.95)")
    if long >= 0.95 * short and long_memory <= short_memory + 16_000_000:
        sys.exit(0)
sys.exit(1)
EOF
