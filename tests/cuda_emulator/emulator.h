// A card that is not there: the kernels of kernels/cuda, compiled by the host's
// compiler and run on this machine, for tests. This header is how a test sets
// the card up and learns what it saw; the kernels see include/ alone.
//
// A thread is a fiber, and one runs at a time: blocks one after the other, the
// threads of a block until each waits. The order of both changes from launch to
// launch, in a way that is the same in every run.
//
// What is checked while a kernel runs, each a Report:
//   - every access of it (the compiler's ThreadSanitizer calls, see
//     instrumentation.cc) lies within one allocation or a shared variable, is
//     aligned, and of two by different threads to one byte, one of them a
//     write, a barrier stands between; shared memory is written before it is
//     read;
//   - __syncthreads() is reached by all threads of the block, at one place; the
//     warp's functions by all lanes that the mask names;
//   - a shuffle reads a lane of the mask.
// New memory is full of NaN. Work is done when somebody waits for it, not when
// it is put into a stream, so that a forgotten wait shows; and device memory
// that is not managed cannot be touched by the host. With the environment's
// CUDA_LAUNCH_BLOCKING=1 work is done at once, as by CUDA.
//
// Thread safety: one thread at a time (the runtime's own functions take a
// lock).

#ifndef TESTS_CUDA_EMULATOR_EMULATOR_H_
#define TESTS_CUDA_EMULATOR_EMULATOR_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_emulator {

enum class Order { kShuffled, kAscending, kDescending };

struct Machine {
  int num_devices = 1;
  size_t device_bytes = size_t{1} << 30;  // of each; at most kMaxDeviceBytes
  Order order = Order::kShuffled;
  uint64_t seed = 0;
  // What cudaGetDeviceCount() says if there are no devices.
  cudaError_t no_device_error = cudaErrorNoDevice;
};
inline constexpr size_t kMaxDeviceBytes = size_t{1} << 32;

// Sets the machine, and forgets errors, reports and failures that were ordered.
// Memory and streams stay.
void SetMachine(const Machine& machine);

// The `nth` runtime call from now on (1: the next) fails with `error`; if
// `sticky`, so do all after it.
void FailCall(int64_t nth, cudaError_t error, bool sticky);

// How many runtime calls there were that can fail.
int64_t NumCalls();

// What a kernel did wrong ends the process, unless reports are collected: then
// the launch is given up and cudaErrorLaunchFailure is what every later call
// returns, until SetMachine().
void CollectReports(bool collect);
std::vector<std::string> TakeReports();

// What cudaMalloc() has given and cudaFree() has not taken back.
size_t AllocatedBytes();

// Whether accesses are checked, and the alignment of all: not where a sanitizer
// has what the kernels call.
bool ChecksAccesses();
bool ChecksAlignment();

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_EMULATOR_H_
