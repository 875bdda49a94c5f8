// The inputs of dense products, rounded to the type of their weights. A block
// does a row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

// Padding columns become zeros, whatever they hold.
__device__ float Input(const MatrixView<const float>& x, int64_t c) {
  return c < x.cols ? x.Row(blockIdx.x)[c] : 0;
}

__global__ void RoundToBFloat16Kernel(MatrixView<const float> x,
                                      uint16_t* out) {
  uint16_t* to = out + blockIdx.x * Padded(x.cols);
  for (int64_t c = threadIdx.x; c < Padded(x.cols); c += kThreads) {
    to[c] = Narrow(Input(x, c));
  }
}

// The largest magnitude among a thread's columns, as its bits, whose order is
// that of the numbers; infinities and NaNs are the largest.
__device__ uint32_t LargestBits(const MatrixView<const float>& x) {
  uint32_t largest = 0;
  for (int64_t c = threadIdx.x; c < x.cols; c += kThreads) {
    largest = max(largest, __float_as_uint(Input(x, c)) & 0x7fffffff);
  }
  return largest;
}

__global__ void RoundToInt8Kernel(MatrixView<const float> x, int8_t* out,
                                  float* scales) {
  __shared__ uint32_t largest;
  if (threadIdx.x == 0) largest = 0;
  __syncthreads();
  atomicMax(&largest, LargestBits(x));
  __syncthreads();
  const float magnitude = __uint_as_float(largest);
  const bool finite = IsFinite(magnitude);
  const float scale = magnitude / 127;
  const bool is_zero = !finite || scale < kLeastInt8Scale;
  const float inverse = is_zero ? 0 : 1 / scale;
  int8_t* to = out + blockIdx.x * Padded(x.cols);
  for (int64_t c = threadIdx.x; c < Padded(x.cols); c += kThreads) {
    to[c] = is_zero ? 0 : static_cast<int8_t>(rintf(Input(x, c) * inverse));
  }
  if (threadIdx.x == 0) {
    scales[blockIdx.x] =
        finite ? (is_zero ? 0 : scale) : __uint_as_float(0x7fc00000);
  }
}

}  // namespace

cudaError_t RoundToBFloat16(MatrixView<const float> x, uint16_t* out,
                            cudaStream_t stream) {
  return Launch(
      RoundToBFloat16Kernel,
      {.grid = dim3(NumBlocks(x.rows, 1)), .block = kThreads, .stream = stream},
      x, out);
}

cudaError_t RoundToInt8(MatrixView<const float> x, int8_t* out, float* scales,
                        cudaStream_t stream) {
  return Launch(
      RoundToInt8Kernel,
      {.grid = dim3(NumBlocks(x.rows, 1)), .block = kThreads, .stream = stream},
      x, out, scales);
}

}  // namespace flash::cuda
