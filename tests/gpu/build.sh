#!/usr/bin/env bash
# Makes a folder of programs that test and measure the CUDA backend on another
# machine: x86-64, a card with its driver and the CUDA 13 libraries, nothing of
# ours and no network. Copy it there and run its check.sh.
#
#   tests/gpu/build.sh [FOLDER]    default: build-gpu/package
#
# Needs what install_packages.sh --tests installs, and the CUDA toolkit. All but
# cuBLAS and the C library is linked into the programs.
set -euo pipefail

max_bytes=$((60 << 20))

case "${1:-}" in
  -h|--help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
  -*) echo "$1 is not known; usage: $0 [FOLDER]" >&2; exit 2 ;;
esac
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build-gpu
package=$(realpath -m "${1:-$build/package}")
programs=(kernels_test cuda_generation_test flash-bench)

cmake -S "$root" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -DNDEBUG" \
  -DCMAKE_CUDA_FLAGS_RELWITHDEBINFO="-O2 -DNDEBUG" \
  -DFLASH_CUDA=ON -DFLASH_BUILD_SERVER=OFF -DFLASH_TEST_ON_CARD=ON \
  -DFLASH_STATIC=ON -DCMAKE_EXE_LINKER_FLAGS="-static-libstdc++ -static-libgcc" \
  >/dev/null
cmake --build "$build" --target "${programs[@]}"

mkdir -p "$package"
for program in "${programs[@]}"; do
  strip -o "$package/$program" "$build/bin/$program"
done
cp "$root"/tests/gpu/check.sh "$root"/tests/bench/goals_h200.json "$package"

# Whatever else they load would be missing there.
for program in "${programs[@]}"; do
  foreign=$(objdump -p "$package/$program" | awk '$1 == "NEEDED" {print $2}' |
    grep -Ev '^(libcublasLt\.so\.[0-9]+|libc\.so\.6|libm\.so\.6|ld-linux-x86-64\.so\.2)$' || true)
  if [ -n "$foreign" ]; then
    echo "$program is not self-contained; it loads" $foreign >&2
    exit 1
  fi
done
bytes=$(du -sb "$package" | cut -f1)
if [ "$bytes" -gt "$max_bytes" ]; then
  echo "$package has $bytes bytes, more than $max_bytes" >&2
  exit 1
fi
echo "$package: $((bytes >> 20)) MiB"
