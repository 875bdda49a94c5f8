// Token shift: the first half of a row's columns become those of the token
// before it. A block does 256 columns of a run, row after row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void ShiftTokensKernel(LayerState state, DeviceRows step,
                                  MatrixView<float> y, uint16_t* rounded) {
  const int64_t half_size = (y.cols + 1) / 2;
  const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= half_size) return;
  const RowRun& run = step.runs[blockIdx.x];
  const Row& first = step.rows[run.first_row];
  float* kept =
      reinterpret_cast<float*>(reinterpret_cast<std::byte*>(state.shift) +
                               first.slot * state.slot_stride) +
      c;
  const int64_t stride = Padded(half_size);
  float before = first.position == 0
                     ? 0
                     : kept[(first.position - 1) % kShiftRows * stride];
  for (int32_t row = run.first_row; row < run.first_row + run.num_rows; ++row) {
    float& half = y.Row(row)[c];
    const float own = half;
    kept[step.rows[row].position % kShiftRows * stride] = own;
    half = before;
    if (rounded != nullptr) rounded[row * Padded(y.cols) + c] = Narrow(before);
    before = own;
  }
}

}  // namespace

cudaError_t ShiftTokens(const LayerState& state, const DeviceRows& step,
                        MatrixView<float> y, uint16_t* rounded,
                        cudaStream_t stream) {
  const unsigned blocks = NumBlocks((y.cols + 1) / 2, kThreads);
  return Launch(ShiftTokensKernel,
                {.grid = dim3(NumBlocks(step.num_runs, 1), blocks),
                 .block = kThreads,
                 .stream = stream},
                state, step, y, rounded);
}

}  // namespace flash::cuda
