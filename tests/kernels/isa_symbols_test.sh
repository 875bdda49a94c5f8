#!/usr/bin/env bash
# isa_symbols_test.sh <build folder>: no function that was compiled for one
# instruction set may take the place of one that runs on every processor. The
# linker keeps one of several equal weak or unique symbols, so those of such
# object files must name the namespace of their set.
set -euo pipefail

failed=0
for isa in avx512bf16 avx512 avx2; do
  folder=$1/kernels/CMakeFiles/flash_cpu_$isa.dir
  objects=$(find "$folder" -name '*.o')
  [ "$(wc -l <<<"$objects")" -ge 5 ] || { echo "no objects in $folder"; exit 1; }
  symbols=$(nm --demangle $objects)
  grep -q "flash::cpu::$isa::kKernels" <<<"$symbols" ||
    { echo "no kernels in $folder"; exit 1; }
  leaks=$(grep -E '^[0-9a-f ]+ [WwVvu] ' <<<"$symbols" |
    grep -v -F "flash::cpu::$isa::" || true)
  if [ -n "$leaks" ]; then
    printf 'compiled for %s, but visible to all code:\n%s\n' "$isa" "$leaks"
    failed=1
  fi
done
exit "$failed"
