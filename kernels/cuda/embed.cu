// The embedding of each row, format step 1. A block does a row.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;

__device__ float TableEntry(const std::byte* table, DataType type, int64_t at) {
  return type == DataType::kFloat32
             ? Load(reinterpret_cast<const float*>(table) + at)
             : Load(reinterpret_cast<const uint16_t*>(table) + at);
}

// What the position adds to column `c`: a sine in the first half, a cosine in
// the second. In double: at a position of a million float32 is visibly wrong.
__device__ float Sinusoid(const double* frequencies, int64_t position,
                          int64_t half, int64_t c) {
  const double angle =
      static_cast<double>(position) * frequencies[c < half ? c : c - half];
  return static_cast<float>(c < half ? sin(angle) : cos(angle));
}

__global__ void EmbedKernel(Embedding embedding, const double* frequencies,
                            const Row* rows, MatrixView<float> x) {
  const Row& row = rows[blockIdx.x];
  const int64_t half = x.cols / 2;
  for (int64_t c = threadIdx.x; c < Padded(x.cols); c += kThreads) {
    float value = 0;
    if (c < x.cols) {
      value =
          TableEntry(embedding.table, embedding.type, row.token * x.cols + c) *
          embedding.scale;
      if (embedding.position == Embedding::Position::kSinusoidal &&
          c < 2 * half) {
        value += embedding.position_scale *
                 Sinusoid(frequencies, row.position, half, c);
      } else if (embedding.position == Embedding::Position::kLearned) {
        value += TableEntry(embedding.position_table, embedding.position_type,
                            row.position * x.cols + c);
      }
    }
    x.Row(blockIdx.x)[c] = value;
  }
}

}  // namespace

cudaError_t Embed(const Embedding& embedding, const double* frequencies,
                  const DeviceRows& step, MatrixView<float> x,
                  cudaStream_t stream) {
  return Launch(
      EmbedKernel,
      {.grid = dim3(NumBlocks(x.rows, 1)), .block = kThreads, .stream = stream},
      embedding, frequencies, step.rows, x);
}

}  // namespace flash::cuda
