#!/usr/bin/env bash
# Runs every fuzz target of a build for so many seconds, from its corpus.
#
#   tests/fuzz/run.sh BUILD_FOLDER SECONDS
#
# Findings stay in BUILD_FOLDER/fuzz/<target>/.
set -euo pipefail
[ $# -eq 2 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
build=$1
seconds=$2
here=$(cd "$(dirname "$0")" && pwd)
targets=("$build"/bin/*_fuzz)
[ -x "${targets[0]}" ] || { echo "no fuzz targets in $build/bin" >&2; exit 1; }
for target in "${targets[@]}"; do
  name=$(basename "$target")
  work=$build/fuzz/$name
  mkdir -p "$work/corpus"
  echo "fuzzing $name for $seconds s"
  seeds=()
  [ -d "$here/corpus/$name" ] && seeds=("$here/corpus/$name")
  if ! "$target" "$work/corpus" "${seeds[@]}" -max_total_time="$seconds" \
      -max_len=1048576 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/" \
      -print_final_stats=1 >"$work/log" 2>&1; then
    tail -n 60 "$work/log" >&2
    echo "$name: a finding in $work" >&2
    exit 1
  fi
  grep -E 'number_of_executed_units|new_units_added' "$work/log" | sed 's/^/  /'
done
echo "${#targets[@]} fuzz targets ran clean for $seconds s each"
