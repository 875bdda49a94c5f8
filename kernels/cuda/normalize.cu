// The norm of each row, format step 2.1. A block does a row; its columns are
// summed by 256 threads, whose sums BlockSum() joins.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

// The sum of one number from each thread of the block, for all of them: halves
// onto halves within each warp, then the warps in turn.
__device__ float BlockSum(float x) {
  __shared__ float of_warp[kThreads / kWarp];
  for (int lanes = kWarp / 2; lanes > 0; lanes /= 2) {
    x += __shfl_xor_sync(kAllLanes, x, lanes);
  }
  __syncthreads();  // the sums of an earlier call have been read
  if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = x;
  __syncthreads();
  float sum = 0;
  for (const float part : of_warp) sum += part;
  return sum;
}

// 1 / the norm's divisor, for scale_norm and rms_norm.
__device__ float InverseRms(const Norm& norm, const float* x, int64_t cols) {
  float sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    sum = fmaf(x[c], x[c], sum);
  }
  const float mean = BlockSum(sum) / static_cast<float>(cols);
  if (norm.eps_mode == Norm::EpsMode::kAdd) {
    return 1.0f / sqrtf(mean + norm.eps);
  }
  const float rms = sqrtf(mean);
  return 1.0f / (rms > norm.eps ? rms : norm.eps);
}

// Where a row's result goes.
struct Output {
  float* y;
  uint16_t* rounded;  // null: nowhere

  __device__ void Put(int64_t c, float number) const {
    y[c] = number;
    if (rounded != nullptr) rounded[c] = Narrow(number);
  }
};

__device__ void LayerNorm(const Norm& norm, const float* x, int64_t cols,
                          const Output& out) {
  float sum = 0;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) sum += x[c];
  const float mean = BlockSum(sum) / static_cast<float>(cols);
  float squares = 0;
  for (int64_t c = threadIdx.x; c < cols; c += kThreads) {
    squares = fmaf(x[c] - mean, x[c] - mean, squares);
  }
  const float variance = BlockSum(squares) / static_cast<float>(cols);
  const float inverse = 1.0f / sqrtf(variance + norm.eps);
  for (int64_t c = threadIdx.x; c < Padded(cols); c += kThreads) {
    const float unit = (x[c] - mean) * inverse;
    // Weight and bias are zero in the padding, and so is the result.
    out.Put(c, fmaf(unit, norm.weight[c], norm.bias[c]));
  }
}

__global__ void NormalizeKernel(Norm norm, MatrixView<const float> x,
                                MatrixView<float> y, uint16_t* rounded) {
  const float* from = x.Row(blockIdx.x);
  const int64_t padded = Padded(x.cols);
  const Output out = {y.Row(blockIdx.x), rounded == nullptr
                                             ? nullptr
                                             : rounded + blockIdx.x * padded};
  if (norm.type == Norm::Type::kLayer) {
    LayerNorm(norm, from, x.cols, out);
    return;
  }
  float scale = 1;
  if (norm.type != Norm::Type::kNone) scale = InverseRms(norm, from, x.cols);
  if (norm.type == Norm::Type::kScale) scale *= norm.weight[0];
  for (int64_t c = threadIdx.x; c < padded; c += kThreads) {
    const float scaled = from[c] * scale;
    out.Put(c,
            norm.type == Norm::Type::kRms ? scaled * norm.weight[c] : scaled);
  }
}

}  // namespace

cudaError_t Normalize(const Norm& norm, MatrixView<const float> x,
                      MatrixView<float> y, uint16_t* rounded,
                      cudaStream_t stream) {
  return Launch(
      NormalizeKernel,
      {.grid = dim3(NumBlocks(x.rows, 1)), .block = kThreads, .stream = stream},
      norm, x, y, rounded);
}

}  // namespace flash::cuda
