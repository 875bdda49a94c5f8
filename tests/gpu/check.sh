#!/usr/bin/env bash
# Tests and measures the CUDA backend on this machine's card, with the programs
# that build.sh has put beside this script, and writes one report. Exits 1 where
# a test fails or a goal is missed. Takes less than ten minutes.
#
#   check.sh [--report=FILE] [--programs=FOLDER] [--dry-run]
#
# --dry-run: what needs no card. Programs that begin and say what they are, and
# a small model measured on the processor.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
programs=$here
report=gpu_report.txt
dry_run=
for argument in "$@"; do
  case "$argument" in
    --report=*) report=${argument#*=} ;;
    --programs=*) programs=${argument#*=} ;;
    --dry-run) dry_run=1 ;;
    -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "$argument is not known; see $0 --help" >&2; exit 2 ;;
  esac
done

# No card that does not answer may hold this up for ever.
deadline=$((SECONDS + 570))
failed=()
: >"$report" || exit 1

say() { echo "$*" | tee -a "$report"; }

# check NAME SECONDS COMMAND...: runs it, its output goes to the report.
check() {
  local name=$1 limit=$2 started=$SECONDS status=0
  shift 2
  local left=$((deadline - SECONDS))
  [ "$limit" -lt "$left" ] || limit=$left
  say "=== $name"
  if [ "$limit" -le 0 ]; then
    say "=== $name: left out, the time is over"
    failed+=("$name")
    return
  fi
  timeout --kill-after=5 "$limit" "$@" >>"$report" 2>&1 || status=$?
  say "=== $name: $([ $status = 0 ] && echo passed || echo "FAILED ($status)") in $((SECONDS - started)) s"
  [ $status = 0 ] || failed+=("$name")
}

# A test that finds no card skips itself, which here is a failure.
on_card() {
  local output
  output=$("$@" 2>&1) || { echo "$output"; return 1; }
  grep -E '^\[|Failure' <<<"$output" | grep -v ' RUN '
  if grep -q '^\[  SKIPPED' <<<"$output"; then
    grep -m1 -A2 'Skipped' <<<"$output"
    return 1
  fi
}
export -f on_card

say "flash-server on a card: $(date -u +%Y-%m-%dT%H:%MZ), $(uname -m)"
if [ -n "$dry_run" ]; then
  check "the operations' tests begin" 60 \
    "$programs/kernels_test" --gtest_filter='*GatherRowsTest*/cuda'
  check "the generations' tests begin" 60 \
    "$programs/cuda_generation_test" --gtest_list_tests
  check "flash-bench on the processor" 120 "$programs/flash-bench" \
    --preset=tiny --batch=1,2 --steps=3 --prompt_tokens=64 --json
else
  # Where the toolkit, or a package of its libraries, puts cuBLAS.
  for folder in /usr/local/cuda/lib64 /usr/local/cuda*/targets/x86_64-linux/lib; do
    [ -e "$folder" ] && LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
  export PATH=$PATH:/usr/local/cuda/bin
  check "the card" 20 nvidia-smi \
    --query-gpu=name,driver_version,memory.total,clocks.max.memory,power.limit \
    --format=csv
  check "every operation against its definition" 180 \
    bash -c 'on_card "$@"' - "$programs/kernels_test" --gtest_filter='*/cuda'
  check "whole generations against the processor's" 120 \
    bash -c 'on_card "$@"' - "$programs/cuda_generation_test"
  for preset in 112m 500m; do
    goals=()
    if [ "$preset" = 112m ] && nvidia-smi -L | grep -q H200; then
      goals=(--goals="$here/goals_h200.json")
    fi
    check "speed of $preset" 120 "$programs/flash-bench" --device=cuda \
      --preset="$preset" --batch=1,8,64,256 "${goals[@]}"
  done
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
      check "compute-sanitizer $tool" 60 compute-sanitizer --tool="$tool" \
        --error-exitcode=1 "$programs/kernels_test" \
        --gtest_filter='*AppendHeadsTest.Rotates*/cuda:*FoldChunksTest.Add*/cuda:*NormalizeTest.Takes*/cuda:*AttendTest.AddsUpTheChunkAlone/cuda'
    done
  else
    say "=== compute-sanitizer is not here: left out"
  fi
fi

if [ ${#failed[@]} -gt 0 ]; then
  say "FAILED: ${failed[*]/%/;}"
  exit 1
fi
say "all passed"
