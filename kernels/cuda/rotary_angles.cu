// cos and sin of each row's angles. A thread does one angle of one row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 64;

__global__ void RotaryAnglesKernel(Rotary rotary, const double* frequencies,
                                   const Row* rows, MatrixView<float> cosines,
                                   MatrixView<float> sines) {
  const int64_t k = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (k >= rotary.size / 2) return;
  const Row& row = rows[blockIdx.x];
  const double position = rotary.position == Rotary::Position::kSequence
                              ? static_cast<double>(row.position)
                              : static_cast<double>(row.offset);
  const double angle = position * frequencies[k];
  cosines.Row(blockIdx.x)[k] = static_cast<float>(cos(angle));
  sines.Row(blockIdx.x)[k] = static_cast<float>(sin(angle));
}

}  // namespace

cudaError_t RotaryAngles(const Rotary& rotary, const double* frequencies,
                         const DeviceRows& step, MatrixView<float> cos,
                         MatrixView<float> sin, cudaStream_t stream) {
  return Launch(RotaryAnglesKernel,
                {.grid = dim3(NumBlocks(cos.rows, 1),
                              NumBlocks(rotary.size / 2, kThreads)),
                 .block = kThreads,
                 .stream = stream},
                rotary, frequencies, step.rows, cos, sin);
}

}  // namespace flash::cuda
