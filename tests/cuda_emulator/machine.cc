#include "tests/cuda_emulator/machine.h"

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "kernels/check.h"
#include "tests/cuda_emulator/grid.h"
#include "tests/cuda_emulator/memory.h"

namespace cuda_emulator {
namespace {

struct State {
  std::recursive_mutex mutex;
  Machine machine;
  int device = 0;
  cudaError_t last = cudaSuccess;
  cudaError_t sticky = cudaSuccess;
  int64_t calls = 0;
  int64_t failing_call = -1;
  cudaError_t failure = cudaSuccess;
  bool failure_is_sticky = false;
  bool collects = false;
  std::vector<std::string> reports;
};

State& TheState() {
  static State& state = *new State;
  return state;
}

}  // namespace

Call::Call() : lock_(TheState().mutex) {
  State& state = TheState();
  ++state.calls;
  if (state.calls == state.failing_call) {
    if (state.failure_is_sticky) state.sticky = state.failure;
    error_ = Return(state.failure);
  } else if (state.sticky != cudaSuccess) {
    error_ = Return(state.sticky);
  }
}

cudaError_t Call::Return(cudaError_t error) const {
  if (error != cudaSuccess) TheState().last = error;
  return error;
}

const Machine& TheMachine() { return TheState().machine; }
int& CurrentDevice() { return TheState().device; }
cudaError_t& LastError() { return TheState().last; }
void SetSticky(cudaError_t error) { TheState().sticky = error; }
cudaError_t Sticky() { return TheState().sticky; }

void SetMachine(const Machine& machine) {
  FLASH_CHECK(machine.device_bytes <= kMaxDeviceBytes);
  State& state = TheState();
  const std::unique_lock lock(state.mutex);
  state.machine = machine;
  state.device = 0;
  state.last = state.sticky = cudaSuccess;
  state.failing_call = -1;
  state.reports.clear();
}

void FailCall(int64_t nth, cudaError_t error, bool sticky) {
  State& state = TheState();
  const std::unique_lock lock(state.mutex);
  state.failing_call = state.calls + nth;
  state.failure = error;
  state.failure_is_sticky = sticky;
}

int64_t NumCalls() { return TheState().calls; }

void CollectReports(bool collect) { TheState().collects = collect; }

std::vector<std::string> TakeReports() {
  return std::exchange(TheState().reports, {});
}

void TakeReport(const std::string& report) {
  State& state = TheState();
  if (!state.collects) {
    std::fprintf(stderr, "CUDA emulator: %s\n", report.c_str());
    std::abort();
  }
  state.reports.push_back(report);
  state.sticky = cudaErrorLaunchFailure;
}

size_t AllocatedBytes() {
  size_t bytes = 0;
  for (int device = 0; device < TheMachine().num_devices; ++device) {
    bytes += AllocatedBytesOf(device);
  }
  return bytes;
}

bool ChecksAccesses() {
#ifdef CUDA_EMULATOR_CHECKS_ACCESSES
  return true;
#else
  return false;
#endif
}

bool ChecksAlignment() {
#ifdef CUDA_EMULATOR_CHECKS_ALIGNMENT
  return true;
#else
  return false;
#endif
}

}  // namespace cuda_emulator
