// What every call of the emulated runtime begins with: the lock, the failures
// that a test has ordered, the error that stays.

#ifndef TESTS_CUDA_EMULATOR_MACHINE_H_
#define TESTS_CUDA_EMULATOR_MACHINE_H_

#include <cuda_runtime.h>

#include <mutex>

#include "tests/cuda_emulator/emulator.h"

namespace cuda_emulator {

class Call {
 public:
  // Counts the call.
  Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Not cudaSuccess: the call must fail with it.
  cudaError_t error() const { return error_; }
  // Remembers `error` for cudaGetLastError(), and returns it.
  cudaError_t Return(cudaError_t error) const;

 private:
  std::unique_lock<std::recursive_mutex> lock_;
  cudaError_t error_ = cudaSuccess;
};

const Machine& TheMachine();
int& CurrentDevice();
// The last call's error, until somebody asks.
cudaError_t& LastError();
// From now on every call fails.
void SetSticky(cudaError_t error);
cudaError_t Sticky();

}  // namespace cuda_emulator

#endif  // TESTS_CUDA_EMULATOR_MACHINE_H_
