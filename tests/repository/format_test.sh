#!/usr/bin/env bash
# Every C++ source is as clang-format leaves it.
cd "$(dirname "$0")/../.."
if ! command -v clang-format >/dev/null; then
  echo "clang-format is not installed: skipped" >&2
  exit 77
fi
git ls-files '*.h' '*.cc' '*.cu' '*.cuh' | xargs clang-format --dry-run --Werror
