#!/usr/bin/env bash
# What the prefix cache gains: time to the first token of a prompt of 100,000 ids
# through a real server with the demo model, when it has never been seen, and when
# its state is cached at its last chunk. Exits 1 if the latter takes 20 ms, or
# more, longer than a prompt that has only what comes after that chunk. Each is
# the median of 9.
#
#   tests/bench/prefix_cache.sh [BUILD_FOLDER] [TOKENS]
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build}
work=$(mktemp -d)
trap 'kill -TERM $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

"$build/bin/flash-server" --model=deploy/models/demo --listen=127.0.0.1:0 \
  --metrics_listen= --slots=4 --port_file="$work/port" 2>/dev/null &
until [ -s "$work/port" ]; do sleep 0.05; done

python3 - "$build/bin/flash-loadtest" "$work" "${2:-100000}" <<'EOF'
import json, pathlib, statistics, subprocess, sys

loadtest, work, tokens = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
chunk = json.loads(pathlib.Path("deploy/models/demo/config.json").read_text())["chunk_size"]
rest = (tokens - 1) % chunk + 1
ROUNDS = 9

def first_token_ms(tokens, seed):
    """Of one request. The same seed and length are the same prompt."""
    report = work / "report.json"
    subprocess.run(
        [loadtest, f"--server={(work / 'port').read_text().strip()}",
         "--sessions=1", "--requests=1", "--duration=0", "--max_tokens=1",
         f"--prompt_tokens={tokens}", f"--seed={seed}", f"--output_json={report}"],
        check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())["first_token_ms"]["mean"]

cold = first_token_ms(tokens, 1)
cached = [first_token_ms(tokens, 1) for _ in range(ROUNDS)]
alone = [first_token_ms(rest, 100 + n) for n in range(ROUNDS)]
added = statistics.median(cached) - statistics.median(alone)
print(f"first token of {tokens} ids: {cold:.0f} ms; cached but for the last {rest}: "
      f"{statistics.median(cached):.1f} ms ({min(cached):.1f} to {max(cached):.1f})")
print(f"of {rest} ids alone: {statistics.median(alone):.1f} ms; "
      f"the cached ones add {added:.1f} ms (less than 20)")
sys.exit(added >= 20)
EOF
