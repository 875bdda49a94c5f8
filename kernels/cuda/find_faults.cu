// Marks the rows that have a number that is not finite. A block does a row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void FindFaultsKernel(MatrixView<const float> x,
                                 RowReport* reports) {
  bool finite = true;
  for (int64_t c = threadIdx.x; c < x.cols; c += kThreads) {
    finite &= IsFinite(x.Row(blockIdx.x)[c]);
  }
  // Whoever finds one writes the same.
  if (!finite) atomicOr(&reports[blockIdx.x].fault, 1u);
}

}  // namespace

cudaError_t FindFaults(MatrixView<const float> x, const DeviceRows& step,
                       cudaStream_t stream) {
  return Launch(
      FindFaultsKernel,
      {.grid = dim3(NumBlocks(x.rows, 1)), .block = kThreads, .stream = stream},
      x, step.reports);
}

}  // namespace flash::cuda
