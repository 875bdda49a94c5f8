// What follows the sums of a dense product: scales of int8 numbers, bias,
// activation. A thread does one number.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void SiluKernel(MatrixView<float> y) {
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= Padded(y.cols)) return;
  float& number = y.Row(blockIdx.x)[c];
  number = Silu(number);
}

__global__ void FinishInt8Kernel(Int8Sums sums, MatrixView<float> y) {
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const int64_t outputs = Padded(y.cols);
  if (c >= outputs) return;
  const float scale = sums.x_scales[blockIdx.x] * sums.weight_scales[c];
  const int32_t sum = sums.sums[blockIdx.x * outputs + c];
  float value = static_cast<float>(sum) * scale + sums.bias[c];
  if (sums.epilogue == Int8Sums::Epilogue::kSilu) value = Silu(value);
  float& number = y.Row(blockIdx.x)[c];
  number = sums.epilogue == Int8Sums::Epilogue::kAdd ? number + value : value;
}

LaunchShape ThreadForEachNumber(const MatrixView<float>& y,
                                cudaStream_t stream) {
  return {
      .grid = dim3(NumBlocks(y.rows, 1), NumBlocks(Padded(y.cols), kThreads)),
      .block = kThreads,
      .stream = stream};
}

}  // namespace

cudaError_t ApplySilu(MatrixView<float> y, cudaStream_t stream) {
  return Launch(SiluKernel, ThreadForEachNumber(y, stream), y);
}

cudaError_t FinishInt8(const Int8Sums& sums, MatrixView<float> y,
                       cudaStream_t stream) {
  return Launch(FinishInt8Kernel, ThreadForEachNumber(y, stream), sums, y);
}

}  // namespace flash::cuda
