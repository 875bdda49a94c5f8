// y[n] = x[rows[n]], with the padding. A block does a row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void GatherRowsKernel(const int32_t* rows, MatrixView<const float> x,
                                 MatrixView<float> y) {
  const float* from = x.Row(rows[blockIdx.x]);
  float* to = y.Row(blockIdx.x);
  for (int64_t c = threadIdx.x; c < Padded(x.cols); c += kThreads) {
    to[c] = from[c];
  }
}

}  // namespace

cudaError_t GatherRows(const int32_t* rows, MatrixView<const float> x,
                       MatrixView<float> y, cudaStream_t stream) {
  return Launch(
      GatherRowsKernel,
      {.grid = dim3(NumBlocks(y.rows, 1)), .block = kThreads, .stream = stream},
      rows, x, y);
}

}  // namespace flash::cuda
