// sum += lin_k^T v, one fused multiply-add for each position in ascending
// order, and the new U where the chunk closes. A block does a tile of 64 x 64
// numbers of one fold's sum, which it reads and writes once; a thread has 4
// rows and 4 columns of it in registers.

#include "kernels/cuda/kernels.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/numbers.h"

namespace flash::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = Panels::kWidth;
constexpr int kSide = 4;                // of a thread's part
constexpr int kAcross = kTile / kSide;  // threads side by side
constexpr int kPositions = 32;          // that are widened at once

static_assert(kAcross * kAcross == kThreads);

template <typename T>
struct Tensors {
  const T* lin_k;  // from the tile's first row on
  const T* value;  // the tile's panel
  float* sum;      // the tile
  T* u;
};

template <typename T>
__device__ Tensors<T> FindTile(const FoldShape& shape, const FoldTask& task,
                               int64_t col, int64_t first_row) {
  const Panels values = {.rows = shape.chunk_size,
                         .cols = Padded(shape.expanded_size)};
  const Panels sums = {.rows = shape.query_key_size, .cols = values.cols};
  const int64_t tile = sums.Begin(col) + first_row * sums.Width(col);
  return {.lin_k = reinterpret_cast<const T*>(task.lin_k) + first_row,
          .value = reinterpret_cast<const T*>(task.value) + values.Begin(col),
          .sum = task.sum + tile,
          .u = reinterpret_cast<T*>(task.u) + tile};
}

// Some positions, widened. (Not in the kernel itself: a
// host compiler does not put a template's variables where the emulator looks
// for shared ones.)
struct Positions {
  float keys[kPositions][kTile];
  float values[kPositions][kTile];
};
__device__ Positions& SharedPositions() {
  __shared__ Positions positions;
  return positions;
}

// T is the cache type: float or uint16_t (bfloat16).
template <typename T>
__global__ void FoldChunksKernel(FoldShape shape, const FoldTask* tasks) {
  auto& [keys, values] = SharedPositions();
  const FoldTask fold = tasks[blockIdx.x];
  const int64_t col = int64_t{blockIdx.y} * kTile;
  const int64_t first_row = int64_t{blockIdx.z} * kTile;
  const int64_t s = Padded(shape.query_key_size);
  const int64_t e = Padded(shape.expanded_size);
  const int height =
      static_cast<int>(min(int64_t{kTile}, shape.query_key_size - first_row));
  const int width = static_cast<int>(min(int64_t{kTile}, e - col));
  const Tensors<T> tensors = FindTile<T>(shape, fold, col, first_row);
  const int row = threadIdx.x / kAcross * kSide;
  const int first_col = threadIdx.x % kAcross * kSide;
  const bool has_cols = first_col < width;

  float sums[kSide][kSide] = {};
  for (int m = 0; m < kSide && has_cols; ++m) {
    if (row + m >= height) continue;
    const float4 sum = *reinterpret_cast<const float4*>(
        tensors.sum + (row + m) * width + first_col);
    sums[m][0] = sum.x;
    sums[m][1] = sum.y;
    sums[m][2] = sum.z;
    sums[m][3] = sum.w;
  }
  for (int32_t first = fold.first; first < fold.last; first += kPositions) {
    const int positions = min(kPositions, fold.last - first);
    __syncthreads();  // the block before this one has been added
    for (int n = threadIdx.x; n < positions * kTile; n += kThreads) {
      const int64_t j = first + n / kTile;
      const int c = n % kTile;
      keys[n / kTile][c] = c < height ? Load(tensors.lin_k + j * s + c) : 0.0f;
      values[n / kTile][c] =
          c < width ? Load(tensors.value + j * width + c) : 0.0f;
    }
    __syncthreads();
    for (int j = 0; j < positions; ++j) {
      for (int m = 0; m < kSide; ++m) {
        for (int n = 0; n < kSide; ++n) {
          sums[m][n] =
              fmaf(keys[j][row + m], values[j][first_col + n], sums[m][n]);
        }
      }
    }
  }
  for (int m = 0; m < kSide && has_cols; ++m) {
    if (row + m >= height) continue;
    const int at = (row + m) * width + first_col;
    *reinterpret_cast<float4*>(tensors.sum + at) =
        make_float4(sums[m][0], sums[m][1], sums[m][2], sums[m][3]);
    for (int n = 0; n < kSide && fold.closes; ++n) {
      Store(tensors.u + at + n, sums[m][n]);
    }
  }
}

}  // namespace

cudaError_t FoldChunks(const FoldShape& shape, const FoldTask* tasks,
                       int64_t num_tasks, cudaStream_t stream) {
  const bool wide = shape.cache == DataType::kFloat32;
  return Launch(wide ? FoldChunksKernel<float> : FoldChunksKernel<uint16_t>,
                {.grid = dim3(NumBlocks(num_tasks, 1),
                              NumBlocks(shape.expanded_size, kTile),
                              NumBlocks(shape.query_key_size, kTile)),
                 .block = kThreads,
                 .stream = stream},
                shape, tasks);
}

}  // namespace flash::cuda
