#!/usr/bin/env bash
# Installs, builds and runs the tests; the last lines are ctest's summary.
#
#   tests/run.sh                       every test (under 20 minutes from scratch
#                                      on two cores)
#   tests/run.sh --sanitizer=address   the tests with AddressSanitizer and
#                                      UndefinedBehaviorSanitizer
#   tests/run.sh --sanitizer=thread    the tests with ThreadSanitizer
#   tests/run.sh --fuzz=SECONDS        every fuzz target for so many seconds
#   tests/run.sh -R REGEX              further arguments go to ctest
set -euo pipefail

sanitizer=
fuzz=
ctest_arguments=()
for argument in "$@"; do
  case "$argument" in
    --sanitizer=address|--sanitizer=thread) sanitizer=${argument#*=} ;;
    --fuzz=*[!0-9]*|--fuzz=) echo "$argument: seconds are a whole number, as in --fuzz=20" >&2; exit 2 ;;
    --fuzz=*) fuzz=${argument#*=} ;;
    -h|--help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --fuzz*|--sani*)
      echo "$argument is not known; there are --sanitizer=address, --sanitizer=thread and --fuzz=SECONDS" >&2
      exit 2 ;;
    *) ctest_arguments+=("$argument") ;;
  esac
done

cd "$(dirname "$0")/.."
bash deploy/local/install_packages.sh --tests

if [ -n "$fuzz" ]; then
  for sanitizer in address undefined; do
    folder=build-fuzz-$sanitizer
    cmake -S . -B "$folder" -G Ninja -DFLASH_FUZZ=ON -DFLASH_CUDA=OFF \
      -DFLASH_SANITIZER="$sanitizer" \
      -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ >/dev/null
    cmake --build "$folder" --target fuzz_targets
    bash tests/fuzz/run.sh "$folder" "$fuzz"
  done
  exit 0
fi

folder=build
arguments=()
if [ -n "$sanitizer" ]; then
  folder=build-$sanitizer
  # nvcc knows no sanitizer; the emulated card is tested all the same.
  arguments=(-DFLASH_SANITIZER="$sanitizer" -DFLASH_CUDA=OFF
             -DCMAKE_BUILD_TYPE=Debug
             -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1")
  # The scripts have no C++ in them, and a sanitizer's own memory grows.
  # The emulated card watches its memory itself; its longest comparison of bits
  # would take minutes.
  left_out='MemoryTest|AttendBitsTest.AreTheSameAloneAndInACrowd/cuda'
  # ThreadSanitizer does not see how gRPC, which is not built for it, hands a
  # call of our server from thread to thread, and would report every one. The
  # clients wait for their calls on threads of their own.
  if [ "$sanitizer" = thread ]; then
    left_out+='|DemoModelTest|ContinuationTest|ServiceTest|TokenStreamTest'
    left_out+='|GrpcServerTest|OwnersTest|ServedSessionsTest|EveryTypeTest'
    left_out+='|ResumptionTest|ClientSessionTest|UnreadSessionsTest'
    left_out+='|SessionTransfersTest'
    left_out+='|DeviceFlagTest|DeviceFailureTest|ServerOnACardTest'
    # The emulated card has one thread, and every access of it would be watched.
    left_out+='|/cuda|CudaGeneration|CudaBackendTest|StepGraphsTest'
  fi
  ctest_arguments+=(-LE python -E "$left_out")
fi
cmake -S . -B "$folder" -G Ninja "${arguments[@]}" >/dev/null
cmake --build "$folder"
export ASAN_OPTIONS=detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export TSAN_OPTIONS="suppressions=$PWD/tests/tsan_suppressions.txt history_size=4"
exec ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)" \
  "${ctest_arguments[@]}"
